"""The telemetry stream: files on the head node, found and followed through the log routes.

Each driver writes one stream, a sequence of files; the oldest are deleted. All existing files are
read, so that a cockpit that attaches late shows the history. Then only the newest file of each
running driver is followed. Ray can end a response cleanly while the job runs (ray #57002, #60665):
each stream is resumed by the sequence numbers of its records.

What reads records is imported when there is a stream: its classes take 13 ms to create.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from cockpit.model.clock import server_time
from cockpit.model.error import CockpitError, UnreachableError
from cockpit.model.event import Event, SourceHealth, source_health
from cockpit.model.run import RunState
from cockpit.model.text import one_line
from cockpit.sources.polling.backoff import Backoff
from cockpit.sources.polling.interval import Pace
from cockpit.sources.polling.pause import end_if_cancelled, pause
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import MissingError, NoDataError
from cockpit.sources.telemetry.files import SOURCE, DriverStates, rows
from training.telemetry.names import FILE_PATTERN, segment_of

if TYPE_CHECKING:
    from cockpit.sources.telemetry.stream import Stream

FIND_S = 1.0
"""Between two looks for new files: one request each."""
FIND_REST_S = 60.0
"""The interval at rest, with a `Pace`: a new job ends the rest."""
FIRST_READ_S = 3.0
"""How long the history of new files delays the health report while no record arrives."""
JOBS_FRESH_S = 3.0
TAIL_LINES = 500
"""Requested to resume: more than a minute's lines; after a gap, all are requested."""
IDLE_S = 10.0
"""A stream without data is opened again: a dead path (NAT, proxy) looks equal."""
CLEAN_END_WAIT_S = 0.2
LINE_LIMIT_BYTES = 8 << 20
"""A tick of 20,000 ranks."""
QUEUE_EVENTS = 1_000
READ_AT_ONCE = 16
"""Connections for the past of streams: a cluster may list those of hundreds of jobs."""

Sleep = Callable[[float], Awaitable[None]]


class TelemetrySource:
    """Yield RunSeen, AttemptStarted, AttemptEnded, RankSampled, MetricsReported and SourceHealth.

    SourceHealth (source `telemetry`) is reported after each search for files: absent without any,
    failed when files cannot be listed or read, and in `error` what was skipped or is missing.
    """

    name = SOURCE

    def __init__(
        self,
        dashboard: Dashboard,
        *,
        find_s: float = FIND_S,
        idle_s: float = IDLE_S,
        jobs_fresh_s: float = JOBS_FRESH_S,
        pace: Pace | None = None,
        clock: Callable[[], float] = server_time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._dashboard = dashboard
        self._pace = pace
        self._find_s, self._idle_s, self._jobs_fresh_s = find_s, idle_s, jobs_fresh_s
        self._clock, self._monotonic, self._sleep = clock, monotonic, sleep
        self._reads = asyncio.Semaphore(READ_AT_ONCE)

    async def events(self) -> AsyncGenerator[Event, None]:
        queue: asyncio.Queue[Event] = asyncio.Queue(QUEUE_EVENTS)
        finder = asyncio.create_task(self._find(queue))
        getter: asyncio.Task[Event] | None = None
        try:
            while True:
                getter = asyncio.create_task(queue.get())
                await asyncio.wait((getter, finder), return_when=asyncio.FIRST_COMPLETED)
                if not getter.done():
                    finder.result()  # it never returns: raise what broke it
                yield await getter
                while not queue.empty():
                    yield queue.get_nowait()
        finally:
            tasks = [task for task in (getter, finder) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _find(self, queue: asyncio.Queue[Event]) -> None:
        """Search for files forever, and read each stream in a separate task."""
        streams: dict[tuple[str, str], Stream] = {}
        backoff = Backoff()
        head = ""
        jobs = self._drivers()
        async with asyncio.TaskGroup() as readers:
            while True:
                try:
                    head = head or await self._head()
                    names = await self._dashboard.log_files(head, FILE_PATTERN)
                except CockpitError as error:
                    head = ""  # it may have been replaced
                    wait_s, now = self._pause_s(backoff.failed()), self._clock()
                    await queue.put(source_health(now, SOURCE, error, now + wait_s))
                    await self._rest(wait_s)
                    continue
                backoff.worked()
                for (node_id, _), old in streams.items():
                    if old.lost and node_id != head:  # the head of a pod that no longer exists
                        old.progress.finish()
                found = []
                for key, files in rows(names).items():
                    stream = streams.get((head, key))
                    if stream is None:
                        from cockpit.sources.telemetry.stream import Stream

                        ray_id = (segment_of(key) or ("", 0))[0]
                        stream = Stream(head, ray_id, self._monotonic(), at=min(files))
                        streams[head, key] = stream
                    elif not stream.lost:
                        stream.listed(files)
                        continue
                    stream.listed(files)
                    stream.lost = False
                    readers.create_task(self._read(stream, jobs, queue))
                    found.append(stream)
                await _all_read(found)  # the first health report comes after the history
                wait_s = self._pause_s(self._find_s)
                await queue.put(self._health(streams.values(), wait_s, absent=not names))
                await self._rest(wait_s)

    def _drivers(self) -> DriverStates:
        return DriverStates(self._dashboard, self._monotonic, self._jobs_fresh_s)

    def _pause_s(self, active_s: float) -> float:
        return self._pace.pause_s(active_s, FIND_REST_S) if self._pace else active_s

    async def _rest(self, seconds: float) -> None:
        await pause(seconds, self._pace.sleep if self._pace else self._sleep)

    async def _head(self) -> str:
        for node in await self._dashboard.nodes():
            if node.is_head and node.alive:
                return node.id
        raise UnreachableError("the dashboard lists no head node that is alive")

    def _health(self, streams: Iterable[Stream], wait_s: float, *, absent: bool) -> SourceHealth:
        broken = [f"{stream.name}: {stream.error}" for stream in streams if stream.error]
        complaints = [
            f"{stream.name}: {stream.progress.complaint}"
            for stream in streams
            if stream.progress.complaint
        ]
        now = self._clock()
        return SourceHealth(
            at_s=now,
            source=SOURCE,
            ok=not broken,
            error=one_line("; ".join(broken + complaints)),
            retry_at_s=now + wait_s if wait_s > self._find_s else None,
            absent=absent,
        )

    async def _read(self, stream: Stream, jobs: DriverStates, queue: asyncio.Queue[Event]) -> None:
        """Read a stream to its end; for as long as its driver may write, follow it."""
        from cockpit.sources.telemetry.records import RereadError

        backoff = Backoff(first_s=0.2, most_s=5.0)
        whole = stream.progress.seq == 0
        while not stream.done:
            before = stream.progress.seq
            try:
                # Checked before reading: a driver that has ended has written all its records, and a
                # file with a successor is complete.
                goes_on = stream.next
                over = goes_on is None and await jobs.is_over(stream)
                ends = over or goes_on is not None
                follow = stream.read.is_set() and not ends
                await self._connect(stream, queue, whole=whole, follow=follow, torn=ends)
                stream.error = ""
                if stream.announced() or goes_on is not None:
                    stream.at, whole = stream.next or stream.at, True
                    continue
                whole, stream.done = False, over
                if follow:
                    await pause(CLEAN_END_WAIT_S, self._sleep)
            except RereadError:
                whole = True
                continue
            except NoDataError:
                end_if_cancelled()
                whole = stream.progress.seq == 0
            except MissingError:
                if (number := stream.next) is not None:
                    stream.at, whole = number, True  # the oldest file was deleted during the read
                    continue
                stream.lost, stream.error = True, ""
                stream.read.set()
                return
            except CockpitError as error:
                whole = stream.progress.seq == 0
                stream.error = one_line(str(error))
                if stream.progress.seq > before:
                    backoff.worked()
                stream.read.set()
                await pause(backoff.failed(), self._sleep)
            stream.read.set()
        stream.progress.finish()

    async def _connect(
        self,
        stream: Stream,
        queue: asyncio.Queue[Event],
        *,
        whole: bool,
        follow: bool,
        torn: bool,
    ) -> None:
        """Read one response, to its end or to the line that names the next file."""
        from cockpit.sources.telemetry.events import event_of
        from training.telemetry.wire import Run

        stream.progress.begin(whole=whole)
        async with (
            nullcontext() if follow else self._reads,
            self._dashboard.stream_log(
                stream.node_id,
                stream.name,
                lines=-1 if whole else TAIL_LINES,
                follow=follow,
                idle_s=self._idle_s,
                limit_bytes=LINE_LIMIT_BYTES,
                torn=torn,
            ) as lines,
        ):
            async for batch in lines:
                stream.error = ""
                for line in batch:
                    record = stream.progress.take(line)
                    if record is None:
                        continue
                    if isinstance(record.body, Run):
                        over = record.body.state in _OVER
                        (stream.running.discard if over else stream.running.add)(record.body.run)
                    if (event := event_of(record)) is not None:
                        await queue.put(event)
                if stream.announced():
                    return


async def _all_read(streams: Sequence[Stream]) -> None:
    """Wait until the history of each stream is read, as long as records arrive."""
    waits = {asyncio.create_task(stream.read.wait()) for stream in streams}
    try:
        while waits:
            before = [stream.progress.seq for stream in streams]
            done, waits = await asyncio.wait(waits, timeout=FIRST_READ_S)
            if not done and before == [stream.progress.seq for stream in streams]:
                return
    finally:
        for task in waits:
            task.cancel()


_OVER = {state.value for state in RunState if state.is_over}
