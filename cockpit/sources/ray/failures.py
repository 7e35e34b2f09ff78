"""Dead processes: kills by the memory monitor, and the last log lines of jobs and attempts."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from typing import Unpack

from cockpit.model.death import BadEnd, BadEnds, MemoryKill, no_ends
from cockpit.model.error import CockpitError
from cockpit.model.event import Event, LogExcerpted, MemoryKillsListed
from cockpit.model.secret import masked
from cockpit.model.text import one_line
from cockpit.sources.polling.source import PollingOptions, PollingSource
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.log_follower import LogFile
from cockpit.sources.ray.logs import job_log

POLL_S = 5.0
KILLS_S = 15.0
"""Between two queries for kills: the dashboard reads the table of all workers for each."""
TAIL_LINES = 400
KEPT_LINES, KEPT_ERRORS = 40, 40
"""The last lines of a log, and before them the first that look like an error."""
LINE_LIMIT = 400
RANK_LOGS = 3
TRIES = 3
_ERROR = re.compile(
    r"error|exception|traceback|killed|fatal|abort|out of memory|no space|signal|xid|failed"
    r"|timed out|timeout|refused|unreachable|preempt|nan\b",
    re.IGNORECASE,
)


class FailuresSource(PollingSource):
    """Yield MemoryKillsListed, LogExcerpted for each log of a failure, and SourceHealth.

    `ends` returns the failures whose logs are to be read. It is awaited on the loop of this source.
    """

    name = "failures"

    def __init__(
        self,
        dashboard: Dashboard,
        ends: BadEnds = no_ends,
        *,
        poll_s: float = POLL_S,
        **polling: Unpack[PollingOptions],
    ) -> None:
        super().__init__(poll_s=poll_s, **polling)
        self._dashboard, self._ends = dashboard, ends
        self._tried: dict[tuple[str, int], int] = {}
        self._kills_s: float | None = None
        self._kills: tuple[MemoryKill, ...] | None = None

    async def poll(self) -> AsyncGenerator[Event, None]:
        now_s = self._monotonic()
        interval_s = self._pause_s(KILLS_S, self.rest_s)
        if self._kills_s is None or now_s - self._kills_s >= interval_s:
            kills = await self._dashboard.memory_kills()
            self._kills_s = now_s
            if kills != (self._kills or ()):
                yield MemoryKillsListed(at_s=self._clock(), source=self.name, kills=kills)
            self._kills = kills
        for end in await self._ends():
            if self._tried.get(end.key, 0) < TRIES:
                self._tried[end.key] = self._tried.get(end.key, 0) + 1
                async for excerpt in self._excerpts(end):
                    self._tried[end.key] = TRIES
                    yield excerpt
        yield self.health()

    async def _excerpts(self, end: BadEnd) -> AsyncGenerator[LogExcerpted, None]:
        """A log that cannot be read, as that of a node that died, is left out."""
        async for log, rank, file in self._logs(end):
            try:
                lines = await self._read(file)
            except CockpitError:
                continue
            yield LogExcerpted(
                at_s=self._clock(),
                source=self.name,
                job_id=end.job_id,
                run_id=end.run_id,
                attempt=end.attempt,
                log=log,
                rank=rank,
                lines=lines,
            )

    async def _logs(self, end: BadEnd) -> AsyncGenerator[tuple[str, int | None, LogFile], None]:
        """The driver's log of a job; of an attempt, what the ranks' processes wrote."""
        if not end.attempt:
            try:
                yield "driver log", None, await job_log(self._dashboard, end.job_id)()
            except CockpitError:
                return
        for placed in end.ranks[:RANK_LOGS]:
            try:
                glob = f"worker-*-{placed.pid}.err"
                names = await self._dashboard.log_files(placed.node_id, glob)
            except CockpitError:
                continue
            for name in names[:1]:
                log = f"log of rank {placed.rank}"
                yield log, placed.rank, LogFile(placed.node_id, name)

    async def _read(self, file: LogFile) -> tuple[str, ...]:
        found: list[str] = []
        async with self._dashboard.stream_log(
            file.node_id,
            file.name,
            lines=TAIL_LINES,
            follow=False,
            limit_bytes=4 * LINE_LIMIT,  # bytes of UTF-8
            torn=True,
        ) as batches:
            async for batch in batches:
                found += [line.decode(errors="replace") for line in batch]
        return chosen(found)


def chosen(lines: Sequence[str]) -> tuple[str, ...]:
    """The first lines that look like an error, and the last lines, in order and without secrets."""
    clean = [masked(one_line(line, LINE_LIMIT)) for line in lines]
    clean = [line for line in clean if line]
    begin = max(0, len(clean) - KEPT_LINES)
    errors = [line for line in clean[:begin] if _ERROR.search(line)][:KEPT_ERRORS]
    return (*errors, *clean[begin:])
