"""A job launched as a RayJob: made, followed to its end, wherever it runs."""

from __future__ import annotations

import argparse
import asyncio
import sys

from cockpit.actions import ClusterActions
from cockpit.backends.protocol import Backend
from cockpit.cli import connect, output
from cockpit.cli.logs import follow_job
from cockpit.launch.rayjob import RayJobOptions
from cockpit.launch.submission import LaunchSpec
from cockpit.model.error import CockpitError, ExitCode
from cockpit.model.run import Job, JobStatus
from cockpit.session import Session
from cockpit.sources.dashboard import Dashboard
from cockpit.sources.http import MissingError
from cockpit.store.store import Store

START_TIMEOUT_S = 600.0
"""A cluster of its own may wait for machines."""
END_TIMEOUT_S = 60.0
"""From the end of its log to the resource's next word: over, or tried again."""
RUNS = "Running"
"""The deployment status (KubeRay's jobDeploymentStatus) from which the job is with Ray."""


def launch(
    args: argparse.Namespace, session: Session, spec: LaunchSpec, options: RayJobOptions
) -> int:
    name = session.call(ClusterActions.on(session).submit_rayjob(spec, options))
    if args.output == "table":
        print(name, flush=True)
    else:
        output.print_json(
            {"name": name, "status": JobStatus.PENDING, "entrypoint": spec.shown_command}
        )
    if not args.follow:
        return int(ExitCode.DONE)
    followed: set[str] = set()
    while (job := _started(session, name, followed)) is not None:
        followed.add(job.id)
        session.call(_print_log(connect.cluster_of(args, session, job), job.id))
    return _ended(session, name)


def _started(session: Session, name: str, followed: set[str]) -> Job | None:
    """The job once it runs under an id that was not followed yet: a retry has another.

    None when it is over, or gone. Each step is told.
    """
    told = ""

    def settled(store: Store) -> bool:
        nonlocal told
        job = connect.rayjob(store, name)
        if job is None:
            return bool(followed)
        if job.deployment != told:
            told = job.deployment
            print(f"RayJob {name}: {told}", file=sys.stderr)
        return job.status.is_over or (job.deployment == RUNS and job.id not in followed)

    in_time = session.wait(settled, END_TIMEOUT_S if followed else START_TIMEOUT_S)
    job = connect.rayjob(session.store, name)
    if not in_time:
        raise CockpitError(
            f"RayJob {name} {'is not over yet' if followed else 'does not run'} after "
            f"{END_TIMEOUT_S if followed else START_TIMEOUT_S:g} s.",
            (job.message or f"It is {job.deployment}.") if job else "It is not listed.",
            f"See: cockpit describe rayjob/{name}, cockpit pods",
        )
    return None if job is None or job.status.is_over else job


async def _print_log(backend: Backend, job_id: str) -> None:
    async with Dashboard(backend.dashboard) as dashboard:
        await _submitted(dashboard, job_id)
        await follow_job(dashboard, job_id)


async def _submitted(dashboard: Dashboard, job_id: str) -> None:
    """KubeRay says that it runs before it has submitted it to Ray."""
    try:
        async with asyncio.timeout(END_TIMEOUT_S):
            while True:
                try:
                    await dashboard.job(job_id)
                except MissingError:
                    await asyncio.sleep(0.5)
                else:
                    return
    except TimeoutError:
        return  # what it says then is what there is to say


def _ended(session: Session, name: str) -> int:
    """The resource's own word: it outlives a cluster of its own, with its dashboard."""
    job = connect.rayjob(session.store, name)
    if job is None:
        print(f"RayJob {name} is gone.", file=sys.stderr)
        return int(ExitCode.FAILED)
    message = f": {job.message}" if job.message and job.status is not JobStatus.SUCCEEDED else ""
    print(f"RayJob {name} is {job.status.value}{message}", file=sys.stderr)
    return int(ExitCode.DONE if job.status is JobStatus.SUCCEEDED else ExitCode.FAILED)
