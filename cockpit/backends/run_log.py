"""All logs of a run as one, read and followed: those of Ray, and the output of its pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime

from cockpit.backends.protocol import Backend
from cockpit.format import in_seconds
from cockpit.logs.block import LineFilter
from cockpit.logs.merge import Merge, text_of
from cockpit.logs.types import Kind, Log
from cockpit.model.clock import server_time
from cockpit.model.error import CockpitError, NotAllowedError, UsageError
from cockpit.model.event import Event, LogLines, SourceHealth, source_health
from cockpit.model.text import one_line
from cockpit.sources.polling.backoff import Backoff
from cockpit.sources.polling.pause import pause
from cockpit.sources.ray import run_logs
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.log_follower import Follower, Trouble
from cockpit.sources.ray.logs import job_log, node_log
from cockpit.sources.ray.run_logs import Place, RunLogs, Unread

LINES = 50
"""Of each log, where no number is given."""
FEWEST_LINES, SHOWN_LINES = 10, 10_000
"""In the UI: of each log, and of all of them together at first."""
FOLLOWED = 64
"""Logs that are followed at one time. Each keeps a connection, and the dashboard polls its file."""
TICK_S = 1.0
"""Between two reads of what was followed: lines that arrive together are folded."""
CATCH_UP_S, QUIET_S = 3.0, 0.5
"""For the last lines of the logs that are followed, so that the first rows are in order; without
more of them for QUIET_S, the remaining logs are taken as empty: an empty log sends nothing.
"""
PODS = 100
"""Pods whose own output is read, the first by name."""
RANKS_EVERY = 10
"""Ticks between two queries for the logs of a new attempt."""
ORDER = (Kind.DRIVER, Kind.CONTROLLER, Kind.RANK, Kind.RAYLET, Kind.GCS)
"""Which logs are followed first."""
POD_S = 5.0
"""For the output of one pod."""
NAMED = 10
"""Unreadable logs up to this number are noted one by one."""

Note = Callable[[str], None]
"""Takes a sentence on what cannot be read."""


class AllLogs:
    """Call `find`, then `read`, then `ticks` if it follows. `merge` has the lines."""

    def __init__(
        self, backend: Backend, dashboard: Dashboard, kept: LineFilter, note: Note
    ) -> None:
        # Ray and Python write local times without a zone. Containers run in UTC.
        local = datetime.now().astimezone().tzinfo or UTC
        self.merge = Merge(kept, local if backend.ref.backend == "local" else UTC, LINES)
        self._backend, self._dashboard, self._note = backend, dashboard, note
        self._found = RunLogs("")
        self._places: dict[int, Place] = {}
        self._pods: dict[int, str] = {}
        self._unread: list[Unread] = []
        self._known: set[tuple[str, str]] = set()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._behind: set[int] = set()
        """Followed logs without any data so far."""
        self._arrival = asyncio.Event()

    @property
    def title(self) -> str:
        return self._found.title

    async def find(self, name: str, pods: Sequence[str]) -> None:
        """Raises UsageError when there is no such run or job."""
        self._found = found = await run_logs.find(self._dashboard, name)
        named, refused = await self._readable(sorted(pods))
        self._unread = [*found.unread, *refused]
        self._places = {self.merge.add(place.log): place for place in found.places}
        self._pods = {self.merge.add(Log(Kind.POD, f"pod {pod}")): pod for pod in named}
        self._known = {(place.file.node_id, place.file.name) for place in found.places}

    async def read(self, lines: int, *, follow: bool) -> None:
        """Read the last lines of all logs; with `follow`, begin to follow up to FOLLOWED of them.

        Raises NotAllowedError.
        """
        self.merge.last = lines
        followed = sorted(self._places, key=self._order)[:FOLLOWED] if follow else []
        rest = [at for at in self._places if at not in followed]
        unread, failed = await asyncio.gather(
            run_logs.read_tails(
                self._dashboard,
                [self._places[at] for at in rest],
                lambda index, batch: self.merge.take(rest[index], batch),
                lines=self.merge.tail_lines,
            ),
            self._read_pods(),
        )
        self._note_unread([*self._unread, *unread, *failed])
        if follow and rest:
            self._note(f"Not followed: {len(rest)} logs; the driver's log has what its ranks print")
        if followed:
            # After the others: the cost of a request grows with the connections that are open.
            self._start({at: self._places[at] for at in followed})
            await self._catch_up()

    async def ticks(self) -> AsyncGenerator[None, None]:
        """Yield when there may be new lines, until the job is over; forever without a job."""
        try:
            ticked = 0
            while self._is_going():
                await pause(TICK_S)
                yield
                ticked += 1
                if ticked % RANKS_EVERY == 0:
                    await self._start_new()
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        """End what follows."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _readable(self, listed: Sequence[str]) -> tuple[Sequence[str], list[Unread]]:
        """The pods whose output is read, and those whose output is not."""
        can = (await self._backend.capabilities()).get("logs")
        if can is None or not can.allowed:
            return (), [Unread("pods", can.why_not if can else "this cluster has no logs of pods")]
        left = len(listed) - PODS
        refused = [Unread(f"{left} pods", f"only {PODS} are read")] if left > 0 else []
        return listed[:PODS], refused

    async def _read_pods(self) -> list[Unread]:
        unread: list[Unread] = []

        async def one(at: int) -> None:
            pod, lines = self._pods[at], self.merge.tail_lines(self.merge.logs[at])
            try:
                async with asyncio.timeout(POD_S):
                    async for line in self._backend.logs(pod, follow=False, lines=lines):
                        self.merge.take_text(at, [line])
            except CockpitError as error:
                unread.append(Unread(f"pod {pod}", one_line(error.why or error.what)))
            except TimeoutError:
                unread.append(Unread(f"pod {pod}", f"not read within {in_seconds(POD_S)}"))

        await run_logs.each(self._pods, one)
        return unread

    def _note_unread(self, unread: Sequence[Unread]) -> None:
        for one in unread[:NAMED]:
            self._note(f"Not read: {one.name}: {one.why}")
        if len(unread) > NAMED:
            names = ", ".join(one.name for one in unread[NAMED:])
            self._note(f"Not read: {one_line(names, 1000)}")

    def _start(self, places: Mapping[int, Place]) -> None:
        for at in sorted(places, key=self._order):
            if sum(not task.done() for task in self._tasks.values()) < FOLLOWED:
                self._behind.add(at)
                self._tasks[at] = asyncio.create_task(self._follow(at, places[at]))

    async def _catch_up(self) -> None:
        waited_s = CATCH_UP_S
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                while self._behind:
                    self._arrival.clear()
                    async with asyncio.timeout(waited_s):  # as in `Pace.sleep`
                        await self._arrival.wait()
                    waited_s = QUIET_S

    def _order(self, at: int) -> int:
        return ORDER.index(self.merge.logs[at].kind)

    def _is_going(self) -> bool:
        """Until the driver's log ends; without one, until every log has ended."""
        drivers = [at for at in self._tasks if self.merge.logs[at].kind is Kind.DRIVER]
        return any(not self._tasks[at].done() for at in drivers or self._tasks)

    async def _start_new(self) -> None:
        try:
            found = await run_logs.find(self._dashboard, self._found.id)
        except CockpitError:
            return  # the followers report what cannot be reached
        files = {(place.file.node_id, place.file.name): place for place in found.places}
        new = [place for file, place in files.items() if file not in self._known]
        self._known.update(files)
        self._start({self.merge.add(place.log): place for place in new})

    async def _follow(self, at: int, place: Place) -> None:
        if place.log.kind is Kind.DRIVER:
            locate = job_log(self._dashboard, self._found.job_id)
        else:
            locate = node_log(place.file.node_id, place.file.name)
        follower = Follower(self._dashboard, locate, tail_lines=self.merge.tail_lines(place.log))
        try:
            async with aclosing(follower.batches()) as batches:
                async for batch in batches:
                    if isinstance(batch, Trouble):
                        what = batch.error.what
                        self._note(
                            f"{place.log.name}: {what}; retry in {in_seconds(batch.wait_s, 0)}"
                        )
                    else:
                        self.merge.take_text(at, batch)
                    self._arrived(at)
        except CockpitError as error:
            self._note_unread([Unread(place.log.name, one_line(error.why or error.what))])
        self._arrived(at)

    def _arrived(self, at: int) -> None:
        if at in self._behind:
            self._behind.discard(at)
            self._arrival.set()


class RunLogSource:
    """LogLines and SourceHealth of all logs of a run, both named `run:RUN`.

    RUN is the id of a run; empty for the newest. `known` returns the job of the run, which is read
    if Ray does not list the run, and the pods of the cluster.
    """

    def __init__(
        self,
        backend: Backend,
        run: str,
        known: Callable[[], Awaitable[tuple[str, Sequence[str]]]],
        clock: Callable[[], float] = server_time,
    ) -> None:
        self.name = f"run:{run}"
        self._backend, self._run, self._known, self._clock = backend, run, known, clock

    async def events(self) -> AsyncGenerator[Event, None]:
        backoff = Backoff()
        while True:
            async with Dashboard(self._backend.dashboard) as dashboard:
                notes: list[str] = []
                logs = AllLogs(self._backend, dashboard, LineFilter(), notes.append)
                try:
                    await self._find(logs)
                except NotAllowedError as error:
                    yield source_health(self._clock(), self.name, error)
                    return
                except CockpitError as error:
                    wait_s, now = backoff.failed(), self._clock()
                    yield source_health(now, self.name, error, now + wait_s)
                    await pause(wait_s)
                    continue
                async with aclosing(self._lines(logs, notes)) as events:
                    async for event in events:
                        yield event
                return

    async def _find(self, logs: AllLogs) -> None:
        job, pods = await self._known()
        try:
            await logs.find(self._run, pods)
        except UsageError:
            if not job:
                raise
            await logs.find(job, pods)

    async def _lines(self, logs: AllLogs, notes: list[str]) -> AsyncGenerator[Event, None]:
        lines = max(FEWEST_LINES, SHOWN_LINES // max(1, len(logs.merge.logs)))
        try:
            await logs.read(lines, follow=True)
        except NotAllowedError as error:
            await logs.close()
            yield source_health(self._clock(), self.name, error)
            return
        yield self._new(logs, notes)
        async with aclosing(logs.ticks()) as ticks:
            async for _ in ticks:
                yield self._new(logs, notes)
                yield source_health(self._clock(), self.name)
        # Nothing more will come, and nothing is wrong with that.
        yield SourceHealth(at_s=self._clock(), source=self.name, ok=True, absent=True)

    def _new(self, logs: AllLogs, notes: list[str]) -> LogLines:
        """The lines since the last call, after what could not be read."""
        lines = (*notes, *map(text_of, logs.merge.rows()))
        notes.clear()
        return LogLines(at_s=self._clock(), source=self.name, stream=self.name, lines=lines)
