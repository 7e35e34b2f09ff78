"""`cockpit logs --all [RUN|JOB]`: all logs of a run, merged by time and folded."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import sys
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, tzinfo

from cockpit.backends.protocol import Backend
from cockpit.cli.options import connect
from cockpit.cli.output import tables
from cockpit.cli.output.streams import log
from cockpit.logs.block import Block, FirstError, LineFilter, merged
from cockpit.logs.fold import folded
from cockpit.logs.line import LineParser
from cockpit.logs.moment import FORMS, moment
from cockpit.logs.types import Kind, Log, Row
from cockpit.model.clock import server_time
from cockpit.model.error import CockpitError, ExitCode, UsageError
from cockpit.model.text import one_line
from cockpit.sources.ray import run_logs
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.log_follower import Follower, Trouble
from cockpit.sources.ray.logs import job_log, node_log
from cockpit.sources.ray.run_logs import Place, Unread

LINES, SEARCHED_LINES = 50, 10_000
"""Of each log, without and with --grep, --since or --around."""
AROUND_S = 30.0
FOLLOWED = 64
"""Logs that are followed at one time. Each keeps a connection, and the dashboard polls its file."""
PRINT_S = 1.0
"""Between two prints of what was followed: lines that arrive together are folded."""
PODS = 100
"""Pods whose own output is read, the first by name."""
RANKS_EVERY = 10
"""Prints between two queries for the logs of a new attempt."""
ORDER = (Kind.DRIVER, Kind.CONTROLLER, Kind.RANK, Kind.RAYLET, Kind.GCS)
"""Which logs are followed first."""
POD_S = 5.0
"""For the output of one pod."""
NAMED = 10
"""Unreadable logs up to this number are listed by name."""


class Merge:
    """The logs that are read, each with its parser and the lines that pass the filter."""

    def __init__(self, kept: LineFilter, zone: tzinfo) -> None:
        self.logs: list[Log] = []
        self.read_lines: list[int] = []
        self._kept, self._zone = kept, zone
        self._parsers: list[LineParser] = []
        self._blocks: list[Block] = []
        self._first = FirstError()
        self._marked = False

    def add(self, log: Log) -> int:
        """The number of the log for `take`."""
        self.logs.append(log)
        self.read_lines.append(0)
        self._parsers.append(LineParser(server_time, self._zone))
        self._blocks.append(Block(log))
        return len(self.logs) - 1

    def take(self, index: int, lines: Sequence[str]) -> None:
        self.read_lines[index] += len(lines)
        for line in self._parsers[index].parse(lines):
            self._first.see(index, self.logs[index], line)
            if self._kept.keeps(line):
                self._blocks[index].append(line)

    def rows(self) -> Iterator[Row]:
        """The rows of all lines since the last call, which are dropped from memory after it."""
        blocks, self._blocks = self._blocks, [Block(log) for log in self.logs]
        first = None if self._marked else self._first.entry
        for row in folded(merged(blocks), self.logs, first):
            self._marked = self._marked or row.first_error
            yield row

    def unshown_error(self) -> Row | None:
        """The first error of the lines that were read, if the filter left it out."""
        first = self._first.entry
        if first is None or self._marked:
            return None
        at_s = None if first.at_s == -math.inf else first.at_s
        return Row(at_s, first.text, first.level, (self.logs[first.log],), first_error=True)


def run(args: argparse.Namespace, pattern: re.Pattern[str] | None) -> int:
    kept = _filter(args, pattern)
    if args.previous:
        raise UsageError("--previous is for one pod, and not for --all.")
    if args.follow and args.output == "json":
        raise UsageError("-o json is one array, which --follow never ends: use -o jsonl.")
    if args.lines is not None and args.lines < 1:
        raise UsageError("--lines must be at least 1.")
    with connect.session(args, sources=(), kinds=("pods",)) as session:
        connect.wait_for(session, ("backend",))
        pods = sorted(session.store.pods)
        session.call(_run(args, session.backend, pods, kept))
    return int(ExitCode.DONE)


def _filter(args: argparse.Namespace, pattern: re.Pattern[str] | None) -> LineFilter:
    if args.since and args.around:
        raise UsageError("Use one of --since and --around.")
    now_s = server_time()
    if args.around:
        at_s = _moment("--around", args.around, now_s)
        return LineFilter(pattern, at_s - AROUND_S, at_s + AROUND_S)
    return LineFilter(pattern, _moment("--since", args.since, now_s) if args.since else None)


def _moment(flag: str, text: str, now_s: float) -> float:
    try:
        return moment(text, now_s)
    except ValueError as error:
        raise UsageError(f"{flag} {text!r} is no time.", todo=f"Write {FORMS}.") from error


async def _run(
    args: argparse.Namespace, backend: Backend, listed: Sequence[str], kept: LineFilter
) -> None:
    # Ray and Python write local times without a zone. Containers run in UTC.
    local = datetime.now().astimezone().tzinfo or UTC
    zone = local if backend.ref.backend == "local" else UTC
    async with Dashboard(backend.dashboard) as dashboard:
        found = await run_logs.find(dashboard, args.what)
        pods, refused = await _pods(backend, listed)
        merge = Merge(kept, zone)
        places = {merge.add(place.log): place for place in found.places}
        of_pods = {merge.add(Log(Kind.POD, f"pod {pod}")): pod for pod in pods}
        searched = kept != LineFilter()
        lines = args.lines or (SEARCHED_LINES if searched else LINES)
        log(f"{found.title}: {len(merge.logs)} logs")
        follow = _Following(dashboard, found, merge, lines)
        if args.follow:
            follow.start(places)
        rest = [at for at in places if at not in follow.tasks]
        unread, failed = await asyncio.gather(
            run_logs.read_tails(
                dashboard,
                [places[at] for at in rest],
                lambda index, batch: merge.take(rest[index], batch),
                lines=lines,
            ),
            _read_pods(backend, of_pods, merge, lines),
        )
        _print_unread([*found.unread, *refused, *unread, *failed])
        if not args.follow:
            if searched and args.lines is None:
                _print_shortened(merge, lines)
            _print_rows(merge.rows(), args.output)
            if (error := merge.unshown_error()) is not None:
                log(f"Left out by the filter: {text_of(error)}")
            return
        if rest:
            log(f"Not followed: {len(rest)} logs; the driver's log has what its ranks print.")
        async with aclosing(follow.ticks()) as ticks:
            async for _ in ticks:
                _print_rows(merge.rows(), args.output)


async def _pods(backend: Backend, listed: Sequence[str]) -> tuple[Sequence[str], list[Unread]]:
    """Those whose logs are read, and those whose are not."""
    can = (await backend.capabilities()).get("logs")
    if can is None or not can.allowed:
        return (), [Unread("pods", can.why_not if can else "this cluster has no logs of pods")]
    left = len(listed) - PODS
    refused = [Unread(f"{left} pods", f"only {PODS} are read")] if left > 0 else []
    return listed[:PODS], refused


async def _read_pods(
    backend: Backend, pods: Mapping[int, str], merge: Merge, lines: int
) -> list[Unread]:
    unread: list[Unread] = []

    async def one(at: int) -> None:
        try:
            async with asyncio.timeout(POD_S):
                async for line in backend.logs(pods[at], follow=False, lines=lines):
                    merge.take(at, [line])
        except CockpitError as error:
            unread.append(Unread(f"pod {pods[at]}", one_line(error.why or error.what)))
        except TimeoutError:
            unread.append(Unread(f"pod {pods[at]}", f"not read within {POD_S:g} s"))

    await run_logs.each(pods, one)
    return unread


def _print_unread(unread: Sequence[Unread]) -> None:
    for one in unread[:NAMED]:
        log(f"Not read: {one.name}: {one.why}.")
    if len(unread) > NAMED:
        names = ", ".join(one.name for one in unread[NAMED:])
        log(f"Not read: {one_line(names, 1000)}.")


def _print_shortened(merge: Merge, lines: int) -> None:
    full = sum(count >= lines for count in merge.read_lines)
    if full:
        log(f"Of {full} logs only the last {lines:,} lines were searched; --lines reads more.")


def _print_rows(rows: Iterable[Row], output: str) -> None:
    if output == "json":
        separator = "["
        for row in rows:
            print(separator, _json(row), sep="\n", end="")
            separator = ","
        print("[]" if separator == "[" else "\n]")
        return
    for row in rows:
        print(_json(row) if output == "jsonl" else text_of(row))
    sys.stdout.flush()


def _json(row: Row) -> str:
    fields = {
        "at_s": row.at_s,
        "ranks": row.ranks,
        "logs": [log.name for log in row.logs],
        "count": row.count,
        "level": row.level,
        "first_error": row.first_error,
        "text": row.text,
    }
    return json.dumps(tables.as_json(fields), allow_nan=False)


def text_of(row: Row) -> str:
    """`11-23 12:00:00.123  ranks 0-3 (8 lines)  text`."""
    at = "-" * 18
    if row.at_s is not None:
        at = f"{datetime.fromtimestamp(row.at_s):%m-%d %H:%M:%S.%f}"[:18]
    mark = ">> FIRST ERROR: " if row.first_error else ""
    many = f" ({row.count} lines)" if row.count > len(row.logs) else ""
    return f"{at}  {one_line(row.writers, 60)}{many}  {mark}{row.text}"


class _Following:
    """Logs that are followed, of new attempts too; those of pods are not."""

    def __init__(
        self, dashboard: Dashboard, found: run_logs.RunLogs, merge: Merge, lines: int
    ) -> None:
        self._dashboard, self._found, self._merge, self._lines = dashboard, found, merge, lines
        self._known = {(place.file.node_id, place.file.name) for place in found.places}
        self.tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, places: Mapping[int, Place]) -> None:
        for at in sorted(places, key=lambda at: ORDER.index(places[at].log.kind)):
            if sum(not task.done() for task in self.tasks.values()) < FOLLOWED:
                self.tasks[at] = asyncio.create_task(self._one(at, places[at]))

    async def ticks(self) -> AsyncGenerator[None, None]:
        """Yield when there may be new lines, until the job is over; forever without a job."""
        try:
            printed = 0
            while self._is_going():
                await asyncio.sleep(PRINT_S)
                yield
                printed += 1
                if printed % RANKS_EVERY == 0:
                    await self._start_new()
            yield
        finally:
            for task in self.tasks.values():
                task.cancel()
            await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    def _is_going(self) -> bool:
        """Until the driver's log ends; without one, until every log has ended."""
        drivers = [at for at in self.tasks if self._merge.logs[at].kind is Kind.DRIVER]
        return any(not self.tasks[at].done() for at in drivers or self.tasks)

    async def _start_new(self) -> None:
        try:
            found = await run_logs.find(self._dashboard, self._found.id)
        except CockpitError:
            return  # the followers report what cannot be reached
        files = {(place.file.node_id, place.file.name): place for place in found.places}
        new = [place for file, place in files.items() if file not in self._known]
        self._known.update(files)
        self.start({self._merge.add(place.log): place for place in new})

    async def _one(self, at: int, place: Place) -> None:
        if place.log.kind is Kind.DRIVER:
            locate = job_log(self._dashboard, self._found.job_id)
        else:
            locate = node_log(place.file.node_id, place.file.name)
        follower = Follower(self._dashboard, locate, tail_lines=self._lines)
        try:
            async with aclosing(follower.batches()) as batches:
                async for batch in batches:
                    if isinstance(batch, Trouble):
                        log(
                            f"({place.log.name}: {batch.error.what}; retry in {batch.wait_s:.0f} s)"
                        )
                    else:
                        self._merge.take(at, batch)
        except CockpitError as error:
            _print_unread([Unread(place.log.name, one_line(error.why or error.what))])
