"""Types of a verdict on the end of an attempt or a job."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from cockpit.insight.hang.types import Confidence

__all__ = ["Advice", "Category", "Cause", "Confidence"]


class Category(StrEnum):
    USER = "user error"
    DATA = "data"
    HOST_MEMORY = "out of host memory"
    DEVICE_MEMORY = "out of device memory"
    OBJECT_STORE = "out of object store memory"
    NODE = "node lost"
    PREEMPTED = "preempted"
    NETWORK = "network"
    STORAGE = "storage"
    GPU = "GPU fault"
    CUDA = "CUDA error"
    """Code on a GPU failed, because of the script, of a library or of the GPU."""
    HANG = "hang"
    STRAGGLER = "straggler kill"
    RAY = "Ray internal"
    RESOURCES = "cluster too small"
    CANCELLED = "cancelled"
    KILLED = "killed"
    """A process ended by a signal, and nothing reports who sent it."""
    UNKNOWN = "unknown"


class Advice(StrEnum):
    STOP = "STOP"
    """The next attempt fails in the same way: change something first."""
    RESTART = "RESTART"


class Cause(Struct, frozen=True):
    """The root cause of one end, apart from its victims."""

    category: Category
    sentence: str
    """Who, and what happened: one line with a full stop."""
    confidence: Confidence
    advice: Advice
    advice_reason: str
    run_id: str = ""
    attempt: int | None = None
    job_id: str = ""
    ranks: tuple[int, ...] = ()
    pod: str = ""
    node: str = ""
    """The K8s node, else the id of the Ray node."""
    since_s: float | None = None
    ended_s: float | None = None
    quote: str = ""
    """The line of a log or of a status that shows the cause."""
    quoted_from: str = ""
    evidence: tuple[str, ...] = ()
    """Other reports around the end, a line each; victims are last."""
