"""Cluster, worker group, pod and node."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from enum import StrEnum
from fnmatch import fnmatchcase

from msgspec import Struct, field

from cockpit.model.partly_shown import PartlyShown
from cockpit.model.text import one_line


class PodPhase(StrEnum):
    """The phase of a pod, named as kubectl prints it."""

    PENDING = "Pending"
    """Requested, but its processes are not running yet: being scheduled, pulled or started."""
    RUNNING = "Running"
    TERMINATING = "Terminating"
    """Being deleted; its grace period is running."""
    FAILED = "Failed"
    """Ended on its own or was killed; a replacement has another name."""
    SUCCEEDED = "Succeeded"
    UNKNOWN = "Unknown"


class NodeType(StrEnum):
    HEAD = "head"
    WORKER = "worker"


class Resources(Struct, frozen=True):
    """The resources that one pod offers to Ray."""

    cpus: float = 1.0
    gpus: float = 0.0
    memory_bytes: int = 0
    """0: not set; Ray then uses what the host has."""


class WorkerGroup(Struct, frozen=True):
    """Pods of one shape, scaled together. Counts are pods, including `min` and `max`.

    If a replica spans several hosts, `hosts` pods form one replica: they are created and removed
    together, and `scale` counts replicas.
    """

    name: str
    desired: int
    ready: int
    min: int
    max: int
    resources: Resources = Resources()
    hosts: int = 1
    """Pods of one replica (KubeRay's numOfHosts)."""
    autoscaled: bool = False
    """Whether Ray's autoscaler changes the number of replicas."""
    suspended: bool = False
    note: str = ""
    """One line that explains the counts: `2 running, held by the autoscaler until idle`."""


class Pod(Struct, frozen=True):
    """One Ray node's container, or on the local backend its process group."""

    name: str
    group: str
    node_type: NodeType
    phase: PodPhase
    ready: bool
    ip: str = ""
    """Also joins the pod to Ray: a Ray node runs on the pod with its address."""
    created_s: float = 0.0
    ended_s: float | None = None
    restarts: int = 0
    reason: str = ""
    """One line: why it is not ready, or how it ended."""
    host: str = ""
    """The Kubernetes node that it runs on."""
    gpus: float = 0.0
    """GPUs that it requests from Kubernetes."""
    replica: str = ""
    """If a replica spans several hosts, its name: its pods are created and deleted together."""
    uid: str = ""
    """Unlike the name, never reused for another pod; empty if the cluster has no UIDs."""
    stage: str = ""
    """For a pod that is not ready, the WaitStage that it has reached; empty if unknown."""
    claims: tuple[str, ...] = ()
    """The volume claims of a pod that waits for volumes."""


class Gpu(Struct, frozen=True):
    """One GPU of a node, with NVML's index."""

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
    """Why Ray considers the node dead, as Ray reports it."""
    disk_used_bytes: int | None = None
    disk_total_bytes: int | None = None
    """Of the fuller one of the root and Ray's session directory. In Kubernetes only with
    RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE=1 (ray/dashboard/modules/reporter/reporter_agent.py)."""
    sent_bytes_per_s: float | None = None
    received_bytes_per_s: float | None = None
    """Of the node's Ethernet interfaces."""
    object_store_used_bytes: int | None = None
    object_store_total_bytes: int | None = None


CONNECTING = "connecting"
"""The reason of a host that has not answered yet: nothing is known of it."""


class PodTraffic(Struct, frozen=True):
    """The network traffic of a pod, as its kubelet measures it: all interfaces but loopback."""

    pod: str
    received_bytes_per_s: float | None = None
    sent_bytes_per_s: float | None = None


class KubernetesNode(Struct, frozen=True):
    """A Kubernetes node, or a host that is reached over SSH."""

    name: str
    ready: bool
    cordoned: bool = False
    """New pods are not placed on it."""
    reason: str = ""
    """One line: why it is not ready, or its pressure condition."""
    ip: str = ""
    version: str = ""
    """The version of the kubelet; of a host, that of its kernel."""
    type: str = ""
    """The instance type, such as `p4d.24xlarge`; empty if it is not known."""
    created_s: float = 0.0
    cpus: float = 0.0
    memory_bytes: int = 0
    gpus: float = 0.0
    """The resources that it offers to pods (allocatable)."""
    gpus_withdrawn: float = 0.0
    """GPUs that it has (capacity) and does not offer: they are unhealthy to the device plugin."""
    taints: tuple[str, ...] = ()
    uid: str = ""
    """Unlike the name, never reused for another node."""
    problems: tuple[str, ...] = ()
    """Conditions and taints that report a problem: of the kubelet, of node-problem-detector, or of
    a GPU operator."""

    @property
    def withdrawn(self) -> str:
        """`1 of 8 GPUs withdrawn`; empty without any."""
        if not self.gpus_withdrawn:
            return ""
        return f"{self.gpus_withdrawn:g} of {self.gpus + self.gpus_withdrawn:g} GPUs withdrawn"


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
    """The head responds, but fewer pods are ready than desired."""
    DOWN = "down"
    SUSPENDED = "suspended"
    """Has no pods on purpose; resuming creates them again."""
    UNKNOWN = "unknown"


class ClusterRef(Struct, frozen=True):
    """The identity of a cluster: enough to name it in the UI and to find it again."""

    backend: str
    """`local`, `kuberay`, `ssh` or `address`."""
    name: str
    namespace: str = ""
    context: str = ""
    """Of a cluster on hosts: the path of their description."""

    def __str__(self) -> str:
        where = "/".join(part for part in (self.context, self.namespace) if part)
        return f"{self.backend}:{where + '/' if where else ''}{self.name}"

    @property
    def described(self) -> str:
        """Context, namespace and name, as the first line of a plan: which cluster it changes."""
        name = one_line(self.name)
        if self.backend == "kuberay":
            context = f"context {one_line(self.context)}, " if self.context else ""
            return f"{context}namespace {one_line(self.namespace)}, RayCluster {name}"
        if self.backend == "ssh":
            return f"cluster {name} on the hosts of {one_line(self.context)}"
        return f"local cluster {name}" if self.backend == "local" else f"Ray cluster at {name}"


class ClusterSummary(Struct, frozen=True):
    """One cluster as a row of a list, from its own object only."""

    ref: ClusterRef
    health: ClusterHealth
    message: str = ""
    desired: int = 0
    ready: int = 0
    """Worker pods."""
    groups: int = 0
    gpus: float = 0.0
    """GPUs of the desired worker pods."""
    ray_version: str = ""
    created_s: float = 0.0
    autoscaled: bool = False


class DashboardRoute(PartlyShown, frozen=True):
    """A working route to the Ray dashboard: base URL without a trailing slash, and headers to send.

    The headers and the proxy's URL may contain a token.
    """

    SHOWN = ("base_url", "server_name", "socket_path", "via")

    base_url: str
    headers: dict[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    """For https: the trusted certificates and the client's certificate. None: the system's."""
    server_name: str = ""
    """Whose certificate is expected; empty: that of the URL's host."""
    socket_path: str = ""
    """A Unix socket to connect to instead of the URL's host (cockpit's own port-forward)."""
    proxy: str = ""
    """The URL of an HTTP or SOCKS proxy to use."""
    via: str = ""
    """The kind of route, as the UI shows it: `service proxy`, `port-forward`."""
    check_peer: Callable[[], None] | None = None
    """Called when a connection is open and nothing was sent on it; raises to reject the peer."""


class Capability(Struct, frozen=True):
    """Whether this user may perform one action here, and if not, why, in one line."""

    allowed: bool
    why_not: str = ""


ACTIONS = {
    "scale": "scale this cluster",
    "delete_pod": "delete pods here",
    "exec": "run commands in pods here",
    "logs": "read the logs of pods here",
    "launch": "reach the dashboard, which is needed to submit and stop jobs",
    "rayjob": "create or delete RayJobs here",
    "suspend": "suspend or resume this cluster",
    "cordon": "cordon Kubernetes nodes",
    "manifest": "read objects here",
    "describe": "describe objects here",
    "evict": "evict pods here",
    "isolate": "create network policies here",
}
"""What each verb of `Backend.capabilities` does, after `permission to`."""


class ClusterPattern(Struct, frozen=True):
    """Glob patterns (`*`, `?` and `[…]`, as in a shell) that a cluster must match, all of them."""

    context: str = "*"
    namespace: str = "*"
    cluster: str = "*"
    backend: str = "*"
    """`local`, `address`, `ssh` or `kuberay`."""

    def matches(self, ref: ClusterRef) -> bool:
        pairs = (
            (ref.context, self.context),
            (ref.namespace, self.namespace),
            (ref.name, self.cluster),
            (ref.backend, self.backend),
        )
        return all(fnmatchcase(name, pattern) for name, pattern in pairs)


def is_protected(ref: ClusterRef, patterns: Iterable[ClusterPattern]) -> bool:
    """Whether a destructive change of the cluster requires that the user types its name."""
    return any(pattern.matches(ref) for pattern in patterns)
