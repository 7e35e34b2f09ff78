"""What a job, a worker group or a pod waits for before it runs: queues, quota, room, volumes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from cockpit.format import plural

GPU_SUFFIX = "/gpu"


class WaitStage(StrEnum):
    """The stages from the queue to a ready pod, in the order in which they are passed."""

    SUSPENDED = "suspended"
    """`spec.suspend` is set, and no queue set it."""
    QUEUE = "queue"
    POSITION = "position"
    QUOTA = "quota"
    CHECK = "admission check"
    """A check of Kueue between the quota and the start, such as a request for new nodes."""
    PODS = "pods"
    """The pods are created; a ResourceQuota may refuse them."""
    GANG = "gang"
    """All pods of a group start together, or none."""
    NODE_ROOM = "node room"
    VOLUME = "volume"
    IMAGE_PULL = "image pull"
    INIT = "init container"
    READY = "ready"


POD_STAGES = (
    WaitStage.NODE_ROOM,
    WaitStage.VOLUME,
    WaitStage.IMAGE_PULL,
    WaitStage.INIT,
    WaitStage.READY,
)
"""The stages of one pod."""


class LinkState(StrEnum):
    DONE = "done"
    BLOCKING = "blocking"
    LATER = "later"
    """A stage before it is not done."""
    UNKNOWN = "unknown"


class Link(Struct, frozen=True):
    """One stage with its state, and what to do if it blocks."""

    stage: WaitStage
    state: LinkState
    text: str
    todo: str = ""


class Chain(Struct, frozen=True):
    """The stages of one object in order. `summary`: what blocks it, in one short line."""

    kind: str
    """`cluster`, `group`, `pod` or `job`."""
    name: str
    links: tuple[Link, ...] = ()
    summary: str = ""
    """Empty if nothing blocks."""

    @property
    def blocking(self) -> Link | None:
        return next((link for link in self.links if link.state is LinkState.BLOCKING), None)


class QueueState(StrEnum):
    PENDING = "pending"
    """No quota is reserved for it."""
    RESERVED = "quota reserved"
    """It waits for admission checks."""
    ADMITTED = "admitted"
    EVICTED = "evicted"
    """It is being stopped, and will be queued again."""
    INACTIVE = "inactive"
    """It is not considered any more."""
    FINISHED = "finished"


class QuotaUse(Struct, frozen=True):
    """One resource of a queue."""

    resource: str
    flavor: str = ""
    """Kueue's name of a kind of node; empty for Volcano."""
    used: float = 0.0
    nominal: float = 0.0
    """What the queue has, without what it may borrow."""
    room: float = 0.0
    """What is free now, with what it may borrow."""
    most: float = 0.0
    """The most that one workload can get, with an empty queue."""
    asked: float = 0.0

    @property
    def is_short(self) -> bool:
        return self.asked > self.room

    @property
    def in_use(self) -> str:
        """`4 of 8 GPUs in use`."""
        used, all_of_it = _number(self.used, self.resource), amount(self.nominal, self.resource)
        return f"{used} of {all_of_it} in use"


class AdmissionCheck(Struct, frozen=True):
    name: str
    state: str
    """`Pending`, `Ready`, `Retry` or `Rejected`."""
    message: str = ""


class QueueEntry(Struct, frozen=True):
    """One workload in a queue: a Workload of Kueue, or a PodGroup of Volcano."""

    manager: str
    """`kueue` or `volcano`."""
    workload: str
    owner_kind: str
    """`RayCluster`, `RayJob` or `Pod`."""
    owner: str
    queue: str
    """The LocalQueue of Kueue, the Queue of Volcano."""
    cluster_queue: str = ""
    """Kueue's: has the quota."""
    cohort: str = ""
    """Kueue's group of ClusterQueues that lend quota to each other."""
    queue_problem: str = ""
    """Why the queue admits nothing, in one line."""
    strict: bool = False
    """Whether a workload waits for those before it even if there is room for it (StrictFIFO)."""
    state: QueueState = QueueState.PENDING
    priority: int = 0
    created_s: float = 0.0
    position: int | None = None
    """From 1, in `queue` if `cluster_queue` is empty."""
    waiting: int | None = None
    """How many wait, with this one."""
    computed: bool = True
    """Computed from priority and creation time in this namespace, and not reported by Kueue."""
    message: str = ""
    """The condition's message, as the queue's controller wrote it."""
    eviction: str = ""
    """Why it was evicted, if it waits again because of that."""
    checks: tuple[AdmissionCheck, ...] = ()
    quota: tuple[QuotaUse, ...] = ()
    """Of each resource that it asks for, the shortest first; empty if unknown."""
    pods: int = 0
    """How many pods start together."""
    running: int | None = None
    """How many of them run; None if not reported."""

    @property
    def is_waiting(self) -> bool:
        return self.state in (QueueState.PENDING, QueueState.RESERVED, QueueState.INACTIVE)

    @property
    def summary(self) -> str:
        """What it waits for in one short line: `queued 3rd in team-a: 4 of 8 GPUs in use`."""
        where = f"in {self.queue}" if self.queue else "without a queue"
        if self.state is QueueState.EVICTED:
            return f"evicted from {self.queue}, being stopped"
        if self.state is QueueState.INACTIVE:
            return f"deactivated {where}"
        if self.state is QueueState.RESERVED:
            waits = next((c.name for c in self.checks if c.state != "Ready"), "")
            return f"quota reserved {where}" + (f", waits for check {waits}" if waits else "")
        if self.state is not QueueState.PENDING:
            return ""
        place = f"queued {ordinal(self.position)} {where}" if self.position else f"queued {where}"
        if self.queue_problem:
            return f"{place}: {self.queue_problem}"
        if self.quota and self.quota[0].is_short:
            return f"{place}: {self.quota[0].in_use}"
        return f"evicted, {place}" if self.eviction else place


class ClaimState(Struct, frozen=True):
    """A volume claim of a pod that waits for it."""

    name: str
    phase: str
    """`Pending`, `Bound` or `Lost`; empty if it does not exist or cannot be read."""
    message: str = ""


class Demand(Struct, frozen=True):
    """Tasks, actors or placement groups of one shape that Ray has no room for."""

    bundles: tuple[tuple[Mapping[str, float], int], ...]
    """Resources by Ray's names, and how many bundles of them: one for a task or an actor."""
    count: int

    @property
    def text(self) -> str:
        """`1 GPU`, `3 × (1 CPU, 1 GPU)`, `a placement group of 2 × 1 GPU`."""
        shapes = ", ".join(_times(count, _shape(resources)) for resources, count in self.bundles)
        if len(self.bundles) == 1 and self.bundles[0][1] == 1:
            return _times(self.count, shapes)
        groups = "a placement group" if self.count == 1 else f"{self.count} placement groups"
        return f"{groups} of {shapes}"


class PendingNode(Struct, frozen=True):
    """A node that the autoscaler has launched, and that has not joined Ray."""

    address: str
    type: str
    status: str
    """Ray's: `waiting-for-ssh`, `syncing-files`, `setting-up`, …"""


class AutoscalerReport(Struct, frozen=True):
    """What Ray's autoscaler reports: what has no room, what it launches, and what failed.

    A head that was started without an autoscaler reports the demand alone.
    """

    demand: tuple[Demand, ...] = ()
    pending: tuple[PendingNode, ...] = ()
    launching: Mapping[str, int] = field(default_factory=dict)
    """Nodes that were requested from the provider and have no address yet, by type."""
    failures: tuple[str, ...] = ()
    """Launches and nodes that failed, the newest last."""
    types: Mapping[str, str] = field(default_factory=dict)
    """The types of the nodes that it has launched, by address."""
    error: str = ""
    """Why the autoscaler itself does not work."""

    @property
    def message(self) -> str:
        """One line; empty if nothing waits and nothing has failed."""
        parts = [f"the autoscaler fails: {self.error}"] if self.error else []
        if self.demand:
            shapes = [demand.text for demand in self.demand]
            more = f" and {len(shapes) - SHAPES} more" if len(shapes) > SHAPES else ""
            parts.append(f"no room for {', '.join(shapes[:SHAPES])}{more}")
        if count := len(self.pending) + sum(self.launching.values()):
            parts.append(f"{plural(count, 'node')} launching")
        if self.failures:
            parts.append(f"last failure: {self.failures[-1]}")
        return "; ".join(parts)


SHAPES = 3
"""Shapes of demand in a message."""


def _shape(resources: Mapping[str, float]) -> str:
    """Resources by Ray's names; `memory` is in bytes."""
    nouns = {"CPU": "cpu", "GPU": "gpu/gpu"}
    shown = [amount(value, nouns.get(name, name)) for name, value in sorted(resources.items())]
    return shown[0] if len(shown) == 1 else f"({', '.join(shown) or 'no resources'})"


def _times(count: int, shape: str) -> str:
    return shape if count == 1 else f"{count} × {shape}"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`."""
    end = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10)
    return f"{number}{end or 'th'}"


def amount(value: float, resource: str) -> str:
    """`8 GPUs`, `4 CPUs`, `3 pods`, `16 GiB memory`."""
    if _is_bytes(resource):
        return f"{_number(value, resource)} {resource}"
    noun = {"cpu": "CPU", "pods": "pod"}.get(resource, "")
    if resource.endswith(GPU_SUFFIX):
        noun = "GPU"
    return plural(value, noun) if noun else f"{value:g} {resource}"


def _number(value: float, resource: str) -> str:
    return f"{value / 2**30:.3g} GiB" if _is_bytes(resource) else f"{value:g}"


def _is_bytes(resource: str) -> bool:
    return resource == "memory" or resource.endswith("storage")
