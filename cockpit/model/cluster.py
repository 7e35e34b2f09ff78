"""Cluster, worker group, pod and node."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class PodPhase(StrEnum):
    """Where a pod is in its life. The words are those that kubectl prints."""

    PENDING = "Pending"
    """Wanted, but its processes are not up yet (being scheduled, pulled, started)."""
    RUNNING = "Running"
    TERMINATING = "Terminating"
    """Asked to go; its grace period is running."""
    FAILED = "Failed"
    """Ended by itself or was killed; a replacement has another name."""
    SUCCEEDED = "Succeeded"
    UNKNOWN = "Unknown"


class NodeType(StrEnum):
    HEAD = "head"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Resources:
    """What one pod offers to Ray."""

    cpus: float = 1.0
    gpus: float = 0.0
    memory_bytes: int = 0
    """0: not told to Ray, which then takes what the machine has."""


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """Pods of one shape, scaled together. Counts are pods."""

    name: str
    desired: int
    ready: int
    min: int
    max: int
    resources: Resources = Resources()


@dataclass(frozen=True, slots=True)
class Pod:
    """One Ray node's container, or on the local backend its process group."""

    name: str
    group: str
    node_type: NodeType
    phase: PodPhase
    ready: bool
    ip: str = ""
    """Also the join to Ray: a Ray node is on the pod with its address."""
    created_s: float = 0.0
    ended_s: float | None = None
    restarts: int = 0
    reason: str = ""
    """One line: why it is not ready, or how it ended."""
    host: str = ""
    """The machine (Kubernetes node) that it runs on."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of a node, as NVML numbers it."""

    index: int
    name: str
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A Ray node, as the dashboard reports it."""

    id: str
    ip: str
    hostname: str
    is_head: bool
    alive: bool
    cpu_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    gpus: tuple[Gpu, ...] = ()
    resources: dict[str, float] = field(default_factory=dict)
    """What the node offers to Ray's scheduler (`CPU`, `GPU`, `memory`, custom names)."""
    state_message: str = ""
    """Ray's words on why a node is dead."""


class ClusterHealth(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    """The head answers, but fewer pods are ready than wanted."""
    DOWN = "down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ClusterRef:
    """Which cluster: enough to name it on a screen and to find it again."""

    backend: str
    """`local`, `kuberay` or `address`."""
    name: str
    namespace: str = ""
    context: str = ""

    def __str__(self) -> str:
        where = "/".join(part for part in (self.context, self.namespace) if part)
        return f"{self.backend}:{where + '/' if where else ''}{self.name}"


@dataclass(frozen=True, slots=True)
class DashboardRoute:
    """A live way to the Ray dashboard: base URL without a trailing slash, and headers to send.

    The headers hold the token; `repr` leaves them out so that no log or traceback shows it.
    """

    base_url: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Capability:
    """Whether this user may do one verb here, and if not why, in one line."""

    allowed: bool
    why_not: str = ""
