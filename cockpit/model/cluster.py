"""Cluster, worker group, pod and node."""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Callable, Iterable
from enum import StrEnum
from fnmatch import fnmatchcase

from msgspec import Struct, field

from cockpit.model.text import one_line


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


class Resources(Struct, frozen=True):
    """What one pod offers to Ray."""

    cpus: float = 1.0
    gpus: float = 0.0
    memory_bytes: int = 0
    """0: not told to Ray, which then takes what the machine has."""


class WorkerGroup(Struct, frozen=True):
    """Pods of one shape, scaled together. Counts are pods, `min` and `max` too.

    Where a replica spans several hosts, `hosts` pods make one replica: they are made and removed
    together, and `scale` counts replicas.
    """

    name: str
    desired: int
    ready: int
    min: int
    max: int
    resources: Resources = Resources()
    hosts: int = 1
    """Pods that make one replica (KubeRay's numOfHosts)."""
    autoscaled: bool = False
    """Ray's autoscaler changes the number of replicas by itself."""
    suspended: bool = False
    note: str = ""
    """What the counts alone do not say, in one line: `wanted 0, running 2, held by the autoscaler
    until idle`."""


class Pod(Struct, frozen=True):
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
    gpus: float = 0.0
    """GPUs that it asks Kubernetes for."""
    replica: str = ""
    """Where a replica spans several hosts, its name: its pods live and go together."""
    uid: str = ""
    """Never given to another pod, unlike the name; empty where the cluster has no such thing."""


class Gpu(Struct, frozen=True):
    """One GPU of a node, as NVML numbers it."""

    index: int
    name: str
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None


class Node(Struct, frozen=True):
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


class Machine(Struct, frozen=True):
    """A Kubernetes node."""

    name: str
    ready: bool
    cordoned: bool = False
    """New pods are not placed on it."""
    reason: str = ""
    """One line: why it is not ready, or which pressure it is under."""
    ip: str = ""
    version: str = ""
    """The kubelet's."""
    created_s: float = 0.0
    cpus: float = 0.0
    memory_bytes: int = 0
    gpus: float = 0.0
    """What it offers to pods (allocatable)."""
    taints: tuple[str, ...] = ()
    uid: str = ""
    """Never given to another node, unlike the name."""
    problems: tuple[str, ...] = ()
    """Conditions and taints that report a problem: of the kubelet, of node-problem-detector, or of
    a GPU operator."""


class QuotaRoom(Struct, frozen=True):
    """How many more pods of a worker group a resource quota of the namespace allows."""

    quota: str
    group: str
    resource: str
    """The resource that ends first: `pods`, `limits.memory`, `requests.nvidia.com/gpu`."""
    pods: int


class ClusterHealth(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    """The head answers, but fewer pods are ready than wanted."""
    DOWN = "down"
    SUSPENDED = "suspended"
    """On purpose without pods; resuming makes them anew."""
    UNKNOWN = "unknown"


class ClusterRef(Struct, frozen=True):
    """Which cluster: enough to name it on a screen and to find it again."""

    backend: str
    """`local`, `kuberay` or `address`."""
    name: str
    namespace: str = ""
    context: str = ""

    def __str__(self) -> str:
        where = "/".join(part for part in (self.context, self.namespace) if part)
        return f"{self.backend}:{where + '/' if where else ''}{self.name}"

    @property
    def described(self) -> str:
        """Context, namespace and name, as the first line of a plan: which cluster it changes."""
        name = one_line(self.name)
        if self.backend == "kuberay":
            context, namespace = one_line(self.context), one_line(self.namespace)
            return f"context {context}, namespace {namespace}, RayCluster {name}"
        return f"local cluster {name}" if self.backend == "local" else f"Ray cluster at {name}"


class ClusterSummary(Struct, frozen=True):
    """One cluster as a row among many, from what its own object says alone."""

    ref: ClusterRef
    health: ClusterHealth
    message: str = ""
    desired: int = 0
    ready: int = 0
    """Worker pods."""
    groups: int = 0
    gpus: float = 0.0
    """GPUs of the worker pods that it wants."""
    ray_version: str = ""
    created_s: float = 0.0
    autoscaled: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class DashboardRoute:
    """A live way to the Ray dashboard: base URL without a trailing slash, and headers to send.

    The headers hold the token; `repr` leaves them out so that no log or traceback shows it.
    """

    base_url: str
    headers: dict[str, str] = dataclasses.field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = dataclasses.field(default=None, repr=False, compare=False)
    """For https: whom to trust and the client's certificate. None: what the system trusts."""
    socket_path: str = ""
    """A Unix socket to connect to in place of the URL's host (a port-forward of our own)."""
    proxy: str = dataclasses.field(default="", repr=False)
    """The HTTP or SOCKS proxy on the way, as a URL."""
    via: str = ""
    """How it goes, in a few words for the screen: `service proxy`, `port-forward`."""
    check_peer: Callable[[], None] | None = dataclasses.field(
        default=None, repr=False, compare=False
    )
    """Called when a connection is open and nothing was sent on it; raises to refuse the peer."""


class Capability(Struct, frozen=True):
    """Whether this user may do one verb here, and if not why, in one line."""

    allowed: bool
    why_not: str = ""


class ClusterPattern(Struct, frozen=True):
    """Glob patterns, all of which a cluster has to match: `*`, `?` and `[…]`, as in a shell."""

    context: str = "*"
    namespace: str = "*"
    cluster: str = "*"
    backend: str = "*"
    """`local`, `address` or `kuberay`."""

    def matches(self, ref: ClusterRef) -> bool:
        pairs = (
            (ref.context, self.context),
            (ref.namespace, self.namespace),
            (ref.name, self.cluster),
            (ref.backend, self.backend),
        )
        return all(fnmatchcase(name, pattern) for name, pattern in pairs)


def is_protected(ref: ClusterRef, patterns: Iterable[ClusterPattern]) -> bool:
    """Whether a destructive change of the cluster needs its name, typed."""
    return any(pattern.matches(ref) for pattern in patterns)
