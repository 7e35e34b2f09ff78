"""Processes that were killed, and log lines around the end of a job or an attempt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from cockpit.model.run import Placement


class MemoryKill(Struct, frozen=True):
    """A worker process that Ray's memory monitor killed."""

    worker_id: str
    node_id: str
    node_ip: str
    pid: int
    at_s: float
    detail: str = ""
    """Ray's exit detail: the memory in use on the node, and the processes that used most."""


class BadEnd(Struct, frozen=True):
    """An attempt or a job that ended badly, whose logs are to be read."""

    job_id: str
    run_id: str = ""
    attempt: int = 0
    """0: the job, whose driver has a log."""
    ranks: tuple[Placement, ...] = ()
    """Of an attempt, the ranks whose logs are read."""

    @property
    def key(self) -> tuple[str, int]:
        return self.run_id or self.job_id, self.attempt


BadEnds = Callable[[], Awaitable[Sequence[BadEnd]]]


async def no_ends() -> Sequence[BadEnd]:
    return ()
