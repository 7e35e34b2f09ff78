"""Logs by what wrote them: a job's driver, or a file on a node such as a rank's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from cockpit.model.clock import server_time
from cockpit.model.error import NotAllowedError
from cockpit.model.event import Event, LogLines, SourceHealth, source_health
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import MissingError
from cockpit.sources.ray.log_follower import POLL_S, Follower, Locate, LogFile, Trouble

TAIL_LINES = 1000


def job_log(dashboard: Dashboard, job_id: str) -> Locate:
    """Where a job's driver log is: on the node where the driver runs, once it does."""

    async def locate() -> LogFile:
        job = await dashboard.job(job_id)
        return LogFile(job.driver_node_id, f"job-driver-{job_id}.log", job.status.is_over)

    return locate


def node_log(node_id: str, name: str) -> Locate:
    """Any file in a node's log directory, such as a rank's; its end is not reported."""

    async def locate() -> LogFile:
        return LogFile(node_id, name)

    return locate


async def follow_job_log(
    dashboard: Dashboard,
    job_id: str,
    *,
    tail_lines: int | None = None,
    follow: bool = True,
    on_trouble: Callable[[Trouble], None] | None = None,
    poll_s: float = POLL_S,
) -> AsyncGenerator[str, None]:
    """A job's log by line, clean and without newlines: see Follower. None: from its start.

    `on_trouble` is called for each failure before a retry.
    """
    follower = Follower(
        dashboard, job_log(dashboard, job_id), tail_lines=tail_lines, follow=follow, poll_s=poll_s
    )
    async for line in _lines(follower, on_trouble):
        yield line


async def follow_node_log(
    dashboard: Dashboard,
    node_id: str,
    name: str,
    *,
    tail_lines: int | None = None,
    follow: bool = True,
    on_trouble: Callable[[Trouble], None] | None = None,
) -> AsyncGenerator[str, None]:
    """A file of a node's log directory by line; with `follow` it ends only when it is closed."""
    follower = Follower(dashboard, node_log(node_id, name), tail_lines=tail_lines, follow=follow)
    async for line in _lines(follower, on_trouble):
        yield line


class LogSource:
    """LogLines and SourceHealth of one log, both named `name`; ends when the log is over."""

    def __init__(
        self,
        name: str,
        dashboard: Dashboard,
        where: Locate,
        clock: Callable[[], float] = server_time,
    ) -> None:
        self.name = name
        self._clock = clock
        self._follower = Follower(dashboard, where, tail_lines=TAIL_LINES)

    async def events(self) -> AsyncGenerator[Event, None]:
        try:
            async with aclosing(self._follower.batches()) as batches:
                async for batch in batches:
                    now = self._clock()
                    if isinstance(batch, Trouble):
                        yield source_health(now, self.name, batch.error, now + batch.wait_s)
                        continue
                    if batch:
                        yield LogLines(at_s=now, source=self.name, stream=self.name, lines=batch)
                    yield source_health(now, self.name)
        except (NotAllowedError, MissingError) as error:
            yield source_health(self._clock(), self.name, error)
            return
        # Nothing more will come, and nothing is wrong with that.
        yield SourceHealth(at_s=self._clock(), source=self.name, ok=True, absent=True)


def job_log_source(
    dashboard: Dashboard, job_id: str, clock: Callable[[], float] = server_time
) -> LogSource:
    """One job's log, `job:ID`; ends when the job does."""
    return LogSource(f"job:{job_id}", dashboard, job_log(dashboard, job_id), clock)


async def _lines(
    follower: Follower, on_trouble: Callable[[Trouble], None] | None
) -> AsyncGenerator[str, None]:
    async with aclosing(follower.batches()) as batches:
        async for batch in batches:
            if isinstance(batch, Trouble):
                if on_trouble is not None:
                    on_trouble(batch)
                continue
            for line in batch:
                yield line
