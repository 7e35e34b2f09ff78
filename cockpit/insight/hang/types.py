"""Types of a verdict on a hang."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from cockpit.insight.hang.place import Place
from cockpit.model.hang import Stack


class Kind(StrEnum):
    SKIPPED = "skipped collective"
    MISMATCH = "mismatched collective"
    DATA = "data loader"
    STORAGE = "storage"
    USER = "user code"
    LOCK = "lock"
    CHILD = "child process"
    EVALUATION = "evaluation"
    FROZEN = "frozen"
    SWAPPED = "swapped out"
    GPU = "GPU fault"
    NETWORK = "network"
    DEADLOCK = "deadlock"
    REPORT = "report"
    RAY = "Ray"
    RESOURCES = "resources"


class Confidence(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class StackGroup(Struct, frozen=True):
    """Ranks whose training threads have the same stack."""

    ranks: tuple[int, ...]
    place: Place
    stack: Stack
    is_cause: bool


class GroupState(Struct, frozen=True):
    """A process group in which a rank waits."""

    name: str
    description: str
    members: int
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    seq: int
    op: str
    shape: str
    age_s: float
    last_called: dict[int, tuple[int, ...]] = {}
    """By sequence number of the newest collective that they called, the lowest first: the ranks."""

    @property
    def called(self) -> dict[int, tuple[int, ...]]:
        """`last_called`, with all ranks that wait at the collective that they wait in.

        DDP calls the collectives of later buckets before the first one is done.
        """
        waiting = {*self.waiting, *self.last_called.get(self.seq, ())}
        return dict(sorted((self.last_called | {self.seq: tuple(sorted(waiting))}).items()))


class Verdict(Struct, frozen=True):
    kind: Kind
    ranks: tuple[int, ...]
    """The ranks that block the others; all of them if none differs."""
    sentence: str
    confidence: Confidence
    idle_s: float
    """Since the last progress, when the newest dump was taken."""
    bound_s: float
    """The longest time without progress that the run's own pace explains."""
    at_s: float
    evidence: tuple[str, ...] = ()
    groups: tuple[GroupState, ...] = ()
    stacks: tuple[StackGroup, ...] = ()
    """The cause first, then the most common."""
    may_restart: bool = True
    """Whether Ray Train starts the ranks again when one is killed (`max_failures`)."""
    job: str = ""
    """The submission id of the run's job, if it was submitted."""
    where: str = ""
    """The part of the sentence with the place of the ranks that the others wait for."""

    @property
    def is_late(self) -> bool:
        return self.idle_s >= self.bound_s
