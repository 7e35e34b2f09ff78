"""`cockpit logs --all [RUN|JOB]`: all logs of a run, merged by time and folded."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import aclosing

from cockpit.backends.protocol import Backend
from cockpit.backends.run_log import LINES, AllLogs
from cockpit.cli.options import connect
from cockpit.cli.output import tables
from cockpit.cli.output.streams import log
from cockpit.format import plural
from cockpit.logs.block import LineFilter
from cockpit.logs.merge import Merge, text_of
from cockpit.logs.time_argument import FORMS, parse_time
from cockpit.logs.types import Row
from cockpit.model.clock import server_time
from cockpit.model.error import ExitCode, UsageError
from cockpit.sources.ray.dashboard import Dashboard

SEARCHED_LINES = 10_000
"""Of each log, with --grep, --since or --around."""
AROUND_S = 30.0


def run(args: argparse.Namespace, pattern: re.Pattern[str] | None) -> int:
    kept = _filter(args, pattern)
    if args.previous:
        raise UsageError("--previous is for one pod, and not for --all.")
    if args.follow and args.output == "json":
        raise UsageError("-o json is one array, which --follow never ends: use -o jsonl.")
    with connect.session(args, sources=(), kinds=("pods",)) as session:
        connect.wait_for(session, ("backend",))
        session.call(_run(args, session.backend, [*session.store.pods], kept))
    return int(ExitCode.DONE)


def _filter(args: argparse.Namespace, pattern: re.Pattern[str] | None) -> LineFilter:
    if args.since and args.around:
        raise UsageError("--since and --around cannot be combined.")
    now_s = server_time()
    if args.around:
        at_s = _moment("--around", args.around, now_s)
        return LineFilter(pattern, at_s - AROUND_S, at_s + AROUND_S)
    return LineFilter(pattern, _moment("--since", args.since, now_s) if args.since else None)


def _moment(flag: str, text: str, now_s: float) -> float:
    try:
        return parse_time(text, now_s)
    except ValueError as error:
        raise UsageError(f"{flag} {text!r} is not a time.", todo=f"Write {FORMS}.") from error


async def _run(
    args: argparse.Namespace, backend: Backend, pods: Sequence[str], kept: LineFilter
) -> None:
    async with Dashboard(backend.dashboard) as dashboard:
        logs = AllLogs(backend, dashboard, kept, note=lambda text: log(f"{text}."))
        await logs.find(args.what, pods)
        searched = kept != LineFilter()
        lines = args.lines or (SEARCHED_LINES if searched else LINES)
        log(f"{logs.title}: {plural(len(logs.merge.logs), 'log')}")
        await logs.read(lines, follow=args.follow)
        if not args.follow:
            if searched and args.lines is None:
                _print_shortened(logs.merge, lines)
            _print_rows(logs.merge.rows(), args.output)
            if (error := logs.merge.unshown_error()) is not None:
                log(f"Left out by the filter: {text_of(error)}")
            return
        async with aclosing(logs.ticks()) as ticks:
            async for _ in ticks:
                _print_rows(logs.merge.rows(), args.output)


def _print_shortened(merge: Merge, lines: int) -> None:
    full = sum(count >= lines for count in merge.read_lines)
    if full:
        log(
            f"Only the last {lines:,} lines of {plural(full, 'log')} were searched; "
            "--lines reads more."
        )


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
