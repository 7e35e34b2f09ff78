"""A job launched as a RayJob: made, followed to its end, wherever it runs."""

from __future__ import annotations

import argparse
import sys
import textwrap

from cockpit.actions.cluster import ClusterActions
from cockpit.backends.protocol import Backend
from cockpit.cli.options import connect
from cockpit.cli.output import tables
from cockpit.cli.read.logs import follow_job
from cockpit.launch.rayjob import RayJobOptions
from cockpit.launch.submission import LaunchSpec
from cockpit.model.error import CockpitError, ExitCode
from cockpit.model.run import Job, JobStatus
from cockpit.session.session import Session
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import MissingError
from cockpit.store.store import Store

START_TIMEOUT_S = 600.0
"""A cluster of its own may wait for nodes."""
END_TIMEOUT_S = 60.0
"""From the end of its log to the resource's next state: over, or tried again."""
SLOW_S = 20.0
"""After so long without a new state, what the operator reports is printed."""
MISSING_POLL_S = 1.0
RUNS = "Running"
"""The jobDeploymentStatus in which KubeRay submits the job, and watches it."""


def launch(
    args: argparse.Namespace, session: Session, spec: LaunchSpec, options: RayJobOptions
) -> int:
    name = session.call(ClusterActions.on(session).submit_rayjob(spec, options))
    if args.output == "table":
        print(name, flush=True)
    else:
        tables.print_json(
            {"name": name, "status": JobStatus.PENDING, "entrypoint": spec.shown_command}
        )
    if not args.follow:
        return int(ExitCode.DONE)
    return _follow(args, session, name)


def _follow(args: argparse.Namespace, session: Session, name: str) -> int:
    """Print the log of each try until the RayJob is over. The exit code."""
    followed: set[str] = set()
    missing_s = 0.0
    while (job := until_submitted(session, name, followed)) is not None:
        followed.add(job.id)
        if session.call(_print_log(connect.cluster_of(args, session, job), job.id)):
            missing_s = 0.0
            continue
        # A new head knows no job of the one before; the operator submits it again or gives up.
        if not missing_s:
            _say(name, f"Ray does not know job {job.id}; waiting for the operator")
        if missing_s >= START_TIMEOUT_S:
            raise _too_late(session, name, missing_s, "is not known to Ray")
        session.wait(lambda store: _is_over(store, name), MISSING_POLL_S)
        missing_s += MISSING_POLL_S
        followed.discard(job.id)
    return _ended(session, name)


def until_submitted(session: Session, name: str, followed: set[str]) -> Job | None:
    """The job once the operator has submitted it under an id that was not followed yet: a retry has
    another. None when it is over or deleted.

    Prints each state with what is being waited for and, where one takes long, what the operator
    reports. Raises CockpitError when it takes too long.
    """
    said = ""

    def settled(store: Store) -> bool:
        nonlocal said
        job = connect.rayjob(store, name)
        if job is None:
            return bool(followed)
        done = job.status.is_over or (_is_with_ray(job) and job.id not in followed)
        state = job.deployment + ("" if done else f", {waiting_for(job)}")
        if state != said:
            said = state
            _say(name, state)
        return done

    limit_s, waited_s = END_TIMEOUT_S if followed else START_TIMEOUT_S, 0.0
    before: str | None = None
    reported: str | None = None
    while not session.wait(settled, min(SLOW_S, limit_s)):
        waited_s += SLOW_S
        if waited_s >= limit_s:
            verdict = "is not over yet" if followed else "has not started"
            raise _too_late(session, name, limit_s, verdict)
        if before == said != reported:
            reported = said
            _report(session, name)
        before = said
    job = connect.rayjob(session.store, name)
    return None if job is None or job.status.is_over else job


def _is_with_ray(job: Job) -> bool:
    return job.deployment == RUNS and job.submitted


def _is_over(store: Store, name: str) -> bool:
    job = connect.rayjob(store, name)
    return job is None or job.status.is_over


def waiting_for(job: Job) -> str:
    if job.deployment == RUNS:
        if job.submitted:
            return "waiting for its end"
        return "waiting until the operator has submitted the job to Ray"
    return {
        "New": "waiting for the KubeRay operator",
        "Initializing": f"waiting until RayCluster {job.cluster or 'of its own'} is ready",
        "Retrying": "waiting for the next try",
        "Suspended": "waiting until it is resumed",
    }.get(job.deployment, "waiting for the next state")


def _report(session: Session, name: str) -> None:
    """What the operator says: the RayJob's state, its cluster's conditions, the Events of both."""
    _say(name, f"no new state for {SLOW_S:g} s. The operator reports:")
    try:
        text = session.call(session.backend.describe("rayjob", name))
    except CockpitError as error:
        text = str(error)
    print(textwrap.indent(text.strip(), "  "), file=sys.stderr)


def _too_late(session: Session, name: str, limit_s: float, verdict: str) -> CockpitError:
    job = connect.rayjob(session.store, name)
    why = f"It is {job.deployment}, {waiting_for(job)}" if job else "It is not listed"
    return CockpitError(
        f"RayJob {name} {verdict} after {limit_s:g} s.",
        f"{why}{f': {job.message}' if job and job.message else ''}.",
        f"See: cockpit describe rayjob/{name}, cockpit pods",
    )


def _say(name: str, what: str) -> None:
    print(f"RayJob {name}: {what}", file=sys.stderr)


async def _print_log(backend: Backend, job_id: str) -> bool:
    """Print the log to its end. False when Ray does not know the job."""
    async with Dashboard(backend.dashboard) as dashboard:
        try:
            await follow_job(dashboard, job_id)
        except MissingError:
            return False
    return True


def _ended(session: Session, name: str) -> int:
    """The resource's own word: it outlives a cluster of its own, with its dashboard."""
    job = connect.rayjob(session.store, name)
    if job is None:
        print(f"RayJob {name} is gone.", file=sys.stderr)
        return int(ExitCode.FAILED)
    message = f": {job.message}" if job.message and job.status is not JobStatus.SUCCEEDED else ""
    print(f"RayJob {name} is {job.status.value}{message}", file=sys.stderr)
    return int(ExitCode.DONE if job.status is JobStatus.SUCCEEDED else ExitCode.FAILED)
