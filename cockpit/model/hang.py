"""The state of ranks that make no progress, as their watchdogs sent it."""

from __future__ import annotations

from msgspec import Struct


class ProcessGroup(Struct, frozen=True):
    """A process group of torch.distributed."""

    name: str
    description: str = ""
    members: tuple[int, ...] = ()
    """Ranks of the run, ascending."""


class Stack(Struct, frozen=True):
    """The Python stack of a thread."""

    frames: tuple[str, ...] = ()
    """The innermost first, each `function (file:line)`."""
    user: int = -1
    """The index of the innermost frame of the user's own code; -1 without one."""
    call: str = ""
    """The call in the innermost frame: `time.sleep`."""
    peer: int = -1
    """The rank that a `send` or `recv` waits for; -1 if there is none."""


class Thread(Struct, frozen=True):
    name: str
    stack: int
    """An index into the stacks of the event."""
    state: str = ""
    """The kernel's thread state: `R` running, `S` sleeping, `D` uninterruptible."""
    is_training: bool = False


class Collective(Struct, frozen=True):
    """A collective that a rank has called."""

    group: int
    """An index into the groups of the event."""
    seq: int
    """The number of the collective in its group, from 1."""
    op: str
    shape: str = ""
    """`float32 [1024]`."""
    age_s: float = 0.0
    """Seconds since the call, by the rank's own clock."""
    done: bool = False


class Reached(Struct, frozen=True):
    """The progress of a rank in a process group: the newest collective called, and completed."""

    group: int
    enqueued: int
    completed: int


class Dump(Struct, frozen=True):
    """One rank at one moment. Seconds are by its own clock, so ranks can be compared."""

    rank: int
    at_s: float = 0.0
    """When it was taken."""
    number: int = 1
    """The number of dumps since the last progress; 0: there is progress again."""
    idle_s: float = 0.0
    """Since the last step, report, checkpoint, or call of a collective."""
    usual_s: float | None = None
    """The usual time between two of these."""
    longest_s: float = 0.0
    """The longest time between two of these so far."""
    bound_s: float = 0.0
    """The longest `idle_s` that is normal for the rank's pace."""
    slow_bound_s: float = 0.0
    """The same for a rank that is busy."""
    cpu_percent: float | None = None
    """Of the process and its children; 100 is one core."""
    io_bytes_per_s: float | None = None
    major_faults_per_s: float | None = None
    """Pages that the kernel read back from a disk for the process."""
    swapped_bytes: int | None = None
    missing: str = ""
    """Why there are no collectives."""
    threads: tuple[Thread, ...] = ()
    reached: tuple[Reached, ...] = ()
    collectives: tuple[Collective, ...] = ()
