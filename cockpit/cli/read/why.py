"""`cockpit why [RUN|JOB]`: why attempts and jobs ended badly, and whether to restart.

`cockpit why KIND/NAME` is `why_waiting`; `--recorded` and `--history` are `post_mortem`.
"""

from __future__ import annotations

import argparse

from cockpit.cli.options import answers, connect
from cockpit.cli.output import tables
from cockpit.cli.output.causes import print_causes
from cockpit.cli.read import why_waiting
from cockpit.insight.causes.types import Cause
from cockpit.insight.causes.verdict import cause_of_job, causes_of_run, newest_cause
from cockpit.insight.hang.types import Verdict
from cockpit.insight.hang.verdict import verdict
from cockpit.model.error import ExitCode, UsageError
from cockpit.session import builder
from cockpit.session.session import Session
from cockpit.store.selectors import going_run
from cockpit.store.store import Store

SOURCES = ("telemetry", "ray")


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.description = (
        "Why the attempts of a run or a job ended badly: the root cause apart from its victims, "
        "since when, the line that shows it, and whether to restart. With KIND/NAME: what an "
        "object waits for, from its queue to its volumes."
    )
    parser.add_argument(
        "what",
        nargs="?",
        default="",
        metavar="RUN|JOB|KIND/NAME",
        help="a run's name or id, or a job's id (default: the run or job that ended last); or "
        "cluster, group/NAME, job/NAME (a RayJob) or pod/NAME, for what it waits for",
    )
    parser.add_argument(
        "--recorded",
        action="store_true",
        help="read the recording of RUN instead of its cluster, which may no longer exist "
        "(default: the newest recording)",
    )
    parser.add_argument(
        "--history",
        action="store_true",
        help="read the newest session of a deleted cluster (--cluster, -n) from KubeRay's History "
        "Server",
    )
    parser.add_argument("--session", default="", help="with --history: the session to read")
    parser.add_argument(
        "--fail",
        action="store_true",
        help="exit with 1 if an attempt of the run has failed, or the object waits",
    )
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.recorded and args.history:
        raise UsageError("--recorded and --history cannot be combined.")
    if args.session and not args.history:
        raise UsageError("--session is for --history.")
    if args.recorded or args.history:
        from cockpit.cli.read import post_mortem

        return post_mortem.run(args)
    if why_waiting.names_object(args.what):
        return why_waiting.run(args)
    with connect.session(args, sources=SOURCES) as session:
        connect.wait_for(session, SOURCES)
        session.add(builder.failures_source(session))
        connect.wait_for(session, ("failures",))
        name, causes = _chosen(session, args.what)
        stuck = _stuck(session.store, args.what, session.clock())
    if args.output != "table":
        row = {"of": name, "causes": causes}
        tables.print_object(row, args.output)
    else:
        print_causes(name, causes)
    if stuck is not None and args.output == "table":
        print(f"\nThe run hangs now: {stuck.sentence}\nSee: cockpit hang")
    return 1 if args.fail and causes else int(ExitCode.DONE)


def _stuck(store: Store, name: str, now_s: float) -> Verdict | None:
    """Why the current run makes no progress, if it is the selected one."""
    of = going_run(store)
    if of is None or (name and name not in (of.id, of.name, of.submission_id)):
        return None
    found = verdict(of, now_s)
    return found if found is not None and found.is_late else None


def _chosen(session: Session, name: str) -> tuple[str, tuple[Cause, ...]]:
    """The name of the run or the job, and its causes with the newest last."""
    store = session.store
    if not name:
        newest = newest_cause(store)
        if newest is None:
            answers.require(session, SOURCES)
            return "", ()
        name = newest.run_id or newest.job_id
    runs = sorted(store.runs.values(), key=lambda run: -run.started_s)
    for of in runs:
        if name in (of.id, of.name, of.submission_id):
            causes = causes_of_run(store, of)
            if causes or name not in store.jobs:
                return f"Run {of.name or of.id} ({of.state.value})", causes
    if (job := store.jobs.get(name)) is not None:
        cause = cause_of_job(store, job)
        return f"Job {job.id} ({job.status.value})", () if cause is None else (cause,)
    answers.require(session, SOURCES)
    names = [run.name or run.id for run in runs] + list(store.jobs)
    raise UsageError(
        f"There is no run or job {name!r}.",
        f"Available: {', '.join(dict.fromkeys(names)) or 'none'}.",
    )
