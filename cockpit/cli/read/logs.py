"""`cockpit logs JOB|POD|RANK`: each line once, through reconnects; `--all`: see all_logs."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial

from cockpit.backends.protocol import Backend
from cockpit.cli.options import connect
from cockpit.cli.output import tables
from cockpit.format import in_seconds
from cockpit.model.error import ExitCode, UnreachableError, UsageError
from cockpit.model.run import Job
from cockpit.session.session import Session
from cockpit.sources.ray.answers import TrainWorker
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import MissingError
from cockpit.sources.ray.log_follower import Trouble
from cockpit.sources.ray.logs import follow_job_log, follow_node_log


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        default="",
        metavar="JOB|POD|RANK",
        help="a job's id, a pod, or a rank's number; with --all a run or a job "
        "(default: the newest)",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="merge the logs of all ranks, the driver, the controller, raylets and pods by time",
    )
    parser.add_argument("-f", "--follow", action="store_true", help="print new lines until it ends")
    parser.add_argument(
        "-p",
        "--previous",
        action="store_true",
        help="the log of the pod's container before its last restart",
    )
    parser.add_argument(
        "--lines", type=int, metavar="N", help="only the last N lines; with --all of each log"
    )
    parser.add_argument("--grep", metavar="RE", help="only lines that match")
    parser.add_argument("--since", metavar="TIME", help="with --all: from then on, as 10m or 12:03")
    parser.add_argument(
        "--around", metavar="TIME", help="with --all: 30 s before and after, as 12:03:04"
    )
    tables.arguments(parser, ("table", *tables.JSON))


def run(args: argparse.Namespace) -> int:
    pattern = _pattern(args.grep)
    if args.lines is not None and args.lines < 1:
        raise UsageError("--lines must be at least 1.")
    if args.all:
        from cockpit.cli.read import all_logs

        return all_logs.run(args, pattern)
    for flag in ("since", "around"):
        if getattr(args, flag):
            raise UsageError(f"--{flag} needs --all.")
    if args.output != "table":
        raise UsageError("-o needs --all: one log is printed as it is.")
    if not args.what:
        raise UsageError(
            "Which log? Name a job, a pod or a rank.", todo="--all prints all logs of a run."
        )
    # One loop for all of it: what a backend has open belongs to the loop that it was opened on.
    with connect.session(args, sources=(), kinds=("pods", "rayjobs")) as session:
        connect.wait_for(session, ("backend",))
        is_pod = args.what in session.store.pods
        if args.previous and not is_pod:
            raise UsageError(
                f"--previous is for a pod, and {args.what!r} is not one.",
                todo="cockpit pods lists them.",
            )
        job = connect.rayjob(session.store, args.what)
        if job is not None:
            if not job.status.is_over:
                if args.follow:
                    return _follow_tries(args, session, job, pattern)
                if not job.submitted:
                    raise _not_submitted(job)
            args.what = job.id
        on = session.backend if job is None else connect.cluster_of(args, session, job)
        session.call(_print(args, on, pattern, is_pod=is_pod))
    return int(ExitCode.DONE)


def _not_submitted(job: Job) -> UnreachableError:
    from cockpit.cli.change.rayjob_start import waiting_for

    return UnreachableError(
        f"RayJob {job.rayjob} has no log yet.",
        f"It is {job.deployment}, {waiting_for(job)}.",
        f"Add -f to wait for it, or see: cockpit describe rayjob/{job.rayjob}",
    )


def _follow_tries(
    args: argparse.Namespace, session: Session, job: Job, pattern: re.Pattern[str] | None
) -> int:
    """Print the log of each try of a RayJob."""
    from cockpit.cli.change import rayjob

    log = partial(follow_job, lines=args.lines, pattern=pattern)
    rayjob.follow(args, session, job.rayjob, log)
    return int(ExitCode.DONE)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise UsageError(f"--grep {text!r} is not a valid regular expression: {error}.") from error


async def _print(
    args: argparse.Namespace,
    backend: Backend,
    pattern: re.Pattern[str] | None,
    *,
    is_pod: bool,
) -> None:
    if is_pod:
        lines = backend.logs(
            args.what,
            follow=args.follow and not args.previous,
            lines=args.lines or sys.maxsize,
            previous=args.previous,
        )
        await _print_lines(lines, pattern)
        return
    if args.what.isdecimal():
        async with Dashboard(backend.dashboard) as dashboard:
            worker = await _worker(dashboard, int(args.what))
            found = follow_node_log(
                dashboard,
                worker.node_id,
                worker.log_file,
                tail_lines=args.lines,
                follow=args.follow,
                on_trouble=_print_trouble,
            )
            async with aclosing(found):
                await _print_lines(found, pattern)
        return
    async with Dashboard(backend.dashboard) as dashboard:
        try:
            await follow_job(
                dashboard, args.what, follow=args.follow, lines=args.lines, pattern=pattern
            )
        except MissingError as error:
            jobs = ", ".join(job.id for job in await dashboard.jobs()) or "none"
            raise UsageError(
                f"There is no job, pod or rank {args.what!r}.",
                f"Jobs: {jobs}.",
                "See also: cockpit pods, cockpit ranks",
            ) from error


WITHOUT = "The ranks of a run without Ray Train write to their job's log: cockpit logs JOB"


async def _worker(dashboard: Dashboard, rank: int) -> TrainWorker:
    """The process of this rank in the newest attempt of the newest run, with its log."""
    for run in await dashboard.train_runs():
        workers = run.attempts[-1].workers if run.attempts else ()
        for worker in workers:
            if worker.rank == rank and worker.log_file:
                if run.state.is_over:  # a run without Ray Train may be active
                    print(f"Run {run.name} is {run.state.value}.", file=sys.stderr)
                return worker
        ranks = ", ".join(str(worker.rank) for worker in workers) or "none yet"
        raise UsageError(
            f"Run {run.name} has no rank {rank} with a log.", f"Its ranks are: {ranks}.", WITHOUT
        )
    raise UsageError(
        f"There is no rank {rank}: Ray Train lists no run.",
        "Only drivers with RAY_TRAIN_ENABLE_STATE_TRACKING=1 are listed; cockpit launch sets it.",
        WITHOUT,
    )


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
        dashboard, job_id, tail_lines=lines, follow=follow, on_trouble=_print_trouble
    )
    async with aclosing(found):
        await _print_lines(found, pattern)


async def _print_lines(lines: AsyncIterator[str], pattern: re.Pattern[str] | None) -> None:
    async for line in lines:
        if pattern is None or pattern.search(line):
            print(line, flush=True)


def _print_trouble(trouble: Trouble) -> None:
    what = trouble.error.what
    print(f"({what}; trying again in {in_seconds(trouble.wait_s, 0)})", file=sys.stderr)
