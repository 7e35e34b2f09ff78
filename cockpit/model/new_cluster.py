"""What a cluster that a RayJob would create needs, and what there is for it beforehand."""

from __future__ import annotations

from msgspec import Struct

from cockpit.model.waiting import ClaimState, QueueEntry


class PodsOf(Struct, frozen=True):
    """The pods of the head, or of a worker group."""

    group: str
    """Empty for the head."""
    count: int
    cpus: float
    memory_bytes: float
    gpus: float
    """What one pod requests."""
    rank_cpus: float = 0.0
    rank_gpus: float = 0.0
    """What Ray offers to ranks in one pod."""
    image: str = ""
    most: int = 0
    """The pods that Ray's autoscaler may make of them; 0: it does not change their number."""


class NodeRoom(Struct, frozen=True):
    """What a node has left for pods, or has in total if the pods on it are not known."""

    name: str
    pods: float
    cpus: float
    memory_bytes: float
    gpus: float
    takes: tuple[str, ...] = ()
    """The groups whose selector and tolerations fit; "" for the head."""


class QuotaLeft(Struct, frozen=True):
    """One resource of a quota that all pods of the cluster count for."""

    quota: str
    resource: str
    asked: float
    left: float


class NewCluster(Struct, frozen=True):
    pods: tuple[PodsOf, ...]
    """Of the head, and of each worker group."""
    nodes: tuple[NodeRoom, ...] | None = None
    """Those that accept pods; None: they may not be listed."""
    is_free: bool = True
    """Whether the nodes' room is what other pods leave, not the total."""
    quotas: tuple[QuotaLeft, ...] = ()
    claims: tuple[ClaimState, ...] = ()
    missing: tuple[str, ...] = ()
    """Objects that the pods refer to and that do not exist, such as `Secret s3`."""
    unread: tuple[str, ...] = ()
    """Objects that the pods refer to and that this user may not read."""
    queue: QueueEntry | None = None
    """As it would be in the queue; None: no queue is asked for, or it is not known."""
    refused: str = ""
    """Why the API server does not accept the RayJob."""
    is_accepted: bool = False
    """Whether the API server accepted it without creating it."""
    unknown: tuple[str, ...] = ()
    """What could not be read, each with the reason."""
