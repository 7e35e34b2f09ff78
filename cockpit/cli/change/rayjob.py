"""A job launched as a RayJob: made, followed to its end, wherever it runs."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from cockpit.actions.jobs import JobActions
from cockpit.backends.protocol import Backend
from cockpit.cli.change.rayjob_start import (
    START_TIMEOUT_S,
    is_with_ray,
    print_state,
    too_late,
    until_submitted,
)
from cockpit.cli.options import connect
from cockpit.cli.output import tables
from cockpit.format import plural
from cockpit.launch.rayjob import RayJobOptions
from cockpit.launch.submission import LaunchSpec
from cockpit.model.error import ExitCode
from cockpit.model.run import Job, JobStatus
from cockpit.session.session import Session
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import MissingError
from cockpit.store.store import Store

Log: TypeAlias = Callable[[Dashboard, str], Awaitable[None]]
"""Prints the log of a job to its end; raises MissingError for an unknown job."""

MISSING_POLL_S = 1.0
LOG_END_S = 10.0
"""For the end of a log, from the end of the job as the operator reports it."""


def launch(
    args: argparse.Namespace,
    session: Session,
    spec: LaunchSpec,
    options: RayJobOptions,
    log: Log,
) -> int:
    name = session.call(JobActions.on(session).submit_rayjob(spec, options))
    if args.output == "table":
        print(name, flush=True)
    else:
        row = {"name": name, "status": JobStatus.PENDING, "entrypoint": spec.shown_command}
        tables.print_object(row, args.output)
    if not args.follow:
        return int(ExitCode.DONE)
    return follow(args, session, name, log)


def follow(args: argparse.Namespace, session: Session, name: str, log: Log) -> int:
    """Print the log of each try until the RayJob is over. The exit code."""
    followed: set[str] = set()
    missing_s = 0.0
    while (job := until_submitted(session, name, followed)) is not None:
        followed.add(job.id)
        if _print_log(connect.cluster_of(args, session, job), session, job, log):
            missing_s = 0.0
            continue
        # A new head does not know the jobs of the previous one; the operator resubmits the job or
        # fails it.
        if not missing_s:
            print_state(name, f"Ray does not know job {job.id}; waiting for the operator")
        if missing_s >= START_TIMEOUT_S:
            raise too_late(session, name, missing_s, "is not known to Ray")
        if session.wait(lambda store: _is_over(store, name), MISSING_POLL_S):
            continue
        missing_s += MISSING_POLL_S
        followed.discard(job.id)
    return _ended(session, name)


def _is_over(store: Store, name: str) -> bool:
    job = connect.rayjob(store, name)
    return job is None or job.status.is_over


def _print_log(backend: Backend, session: Session, job: Job, log: Log) -> bool:
    """Print the log to its end. Return False when Ray does not know the job.

    A cluster that is deleted for a retry, or after the job, takes the rest of its log with it.
    """
    printing = session.submit(_known(backend, job.id, log))
    session.wait(lambda store: printing.done() or _has_left(store, job), math.inf)
    if not session.wait(lambda store: printing.done(), LOG_END_S):
        printing.cancel()
        print_state(job.rayjob, f"the log of job {job.id} may be incomplete: its cluster is over")
        return True
    return printing.result()


def _has_left(store: Store, job: Job) -> bool:
    """Whether the operator no longer follows this try of the RayJob."""
    now = connect.rayjob(store, job.rayjob)
    return now is None or now.id != job.id or now.status.is_over or not is_with_ray(now)


async def _known(backend: Backend, job_id: str, log: Log) -> bool:
    async with Dashboard(backend.dashboard) as dashboard:
        try:
            await log(dashboard, job_id)
        except MissingError:
            return False
    return True


def _ended(session: Session, name: str) -> int:
    """The RayJob's state: the resource outlives the cluster that it created, with its dashboard."""
    job = connect.rayjob(session.store, name)
    if job is None:
        print(f"RayJob {name} was deleted.", file=sys.stderr)
        return int(ExitCode.FAILED)
    message = f": {job.message}" if job.message and job.status is not JobStatus.SUCCEEDED else ""
    tries = f" after {plural(job.failed, 'failed try')}" if job.failed and job.retries else ""
    print(f"RayJob {name} is {job.status.value}{tries}{message}", file=sys.stderr)
    return int(ExitCode.DONE if job.status is JobStatus.SUCCEEDED else ExitCode.FAILED)
