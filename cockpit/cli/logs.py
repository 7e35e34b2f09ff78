"""`cockpit logs JOB|POD|RANK`: each line once, through reconnects."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing

from cockpit.backends.protocol import Backend
from cockpit.cli import connect
from cockpit.model.error import CockpitError, ExitCode, UsageError
from cockpit.sources.dashboard import Dashboard
from cockpit.sources.follower import Trouble
from cockpit.sources.http import MissingError
from cockpit.sources.logs import follow_job_log
from cockpit.store import select


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument(
        "what", metavar="JOB|POD|RANK", help="a job's id, a pod, or a rank's number"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on until it ends")
    parser.add_argument("--lines", type=int, metavar="N", help="only the last N lines")
    parser.add_argument("--grep", metavar="RE", help="only lines that match")


def run(args: argparse.Namespace) -> int:
    pattern = _pattern(args.grep)
    backend = connect.backend(args)
    pod = _pod(args, backend)
    asyncio.run(_print(args, backend, pod, pattern))
    return int(ExitCode.DONE)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise UsageError(f"--grep {text!r} is no regular expression: {error}.") from error


def _pod(args: argparse.Namespace, backend: Backend) -> str:
    """The pod that is meant, or empty when it is a job."""
    needs = ("backend", "telemetry") if args.what.isdecimal() else ("backend",)
    with connect.session_on(backend, sources=needs) as session:
        connect.wait_for(session, needs)
        if args.what in session.store.pods:
            return str(args.what)
        if not args.what.isdecimal():
            return ""
        run = select.current_run(session.store)
        rank = run.ranks.get(int(args.what)) if run else None
        pod = select.pod_of_rank(session.store, rank) if rank else None
        if pod is None:
            raise UsageError(f"There is no living rank {args.what}.", todo="See: cockpit ranks")
        return pod.name


async def _print(
    args: argparse.Namespace, backend: Backend, pod: str, pattern: re.Pattern[str] | None
) -> None:
    if pod:
        lines = backend.logs(pod, follow=args.follow, lines=args.lines or sys.maxsize)
        await _print_lines(lines, pattern)
        return
    async with Dashboard(backend.dashboard) as dashboard:
        try:
            await follow_job(
                dashboard, args.what, follow=args.follow, lines=args.lines, pattern=pattern
            )
        except MissingError as error:
            jobs = ", ".join(job.id for job in await dashboard.jobs()) or "none"
            raise CockpitError(
                f"There is no job, pod or rank {args.what!r}.",
                f"Jobs: {jobs}.",
                "See also: cockpit pods, cockpit ranks",
            ) from error


async def follow_job(
    dashboard: Dashboard,
    job_id: str,
    *,
    follow: bool = True,
    lines: int | None = None,
    pattern: re.Pattern[str] | None = None,
) -> None:
    """Print a job's log to standard output, trouble to standard error."""
    found = follow_job_log(
        dashboard, job_id, tail_lines=lines, follow=follow, on_trouble=_say_trouble
    )
    async with aclosing(found):
        await _print_lines(found, pattern)


async def _print_lines(lines: AsyncIterator[str], pattern: re.Pattern[str] | None) -> None:
    async for line in lines:
        if pattern is None or pattern.search(line):
            print(line, flush=True)


def _say_trouble(trouble: Trouble) -> None:
    what = trouble.error.what
    print(f"({what}; trying again in {trouble.wait_s:.0f} s)", file=sys.stderr)
