"""Resubmit a job that the cluster lost, from a process that waits for it.

A driver usually runs on the head and dies with it, and the new head does not know the job: Ray
keeps jobs in the head's memory unless it has an external store. With one, the new head lists the
job as RUNNING (Ray 2.60, for the 5 minutes that were measured): so a job counts as lost, too, when
the node of its driver has died. The same command with the same run name continues from the newest
checkpoint, so that resubmission is enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from cockpit.launch import submission
from cockpit.launch.submission import LaunchSpec
from cockpit.model.error import UnreachableError, ended
from cockpit.model.run import Job, JobStatus
from cockpit.sources.polling.backoff import Backoff
from cockpit.sources.polling.pause import pause
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import AnswerError, MissingError

LOOK_S = 1.0
"""How often to look, also at a cluster that does not answer: the run waits for it."""
LOST = ("Job supervisor actor died", "Unexpected error occurred: failed to get job supervisor")
"""The beginnings of Ray 2.60's message on a job whose driver was lost (`job_manager.py`).

A script that failed has another message: it would only fail again.
"""
GIVE_UP_S = 1800.0
"""How long to wait for a cluster to accept a job after it lost one."""
_UNKNOWN = "does not exist"
"""Ray's response, with status 404, for an unknown job."""


def was_lost(job: Job) -> bool:
    """Its driver's process or node died, through no fault of the script."""
    return job.status is JobStatus.FAILED and job.message.startswith(LOST)


async def already_running(dashboard: Dashboard, spec: LaunchSpec) -> LaunchSpec | None:
    """The spec with the id of the job that runs its command, if there is one.

    A process that waits for a job may be replaced by another one, which launches the same command:
    a second job with the same run name would write to the same checkpoints.
    """
    for job in await dashboard.jobs():
        going = not job.status.is_over and job.entrypoint == spec.command
        if going and not await _has_lost_its_driver(dashboard, job):
            return replace(spec, submission_id=job.id)
    return None


async def submit_and_resubmit(
    dashboard: Dashboard,
    spec: LaunchSpec,
    times: int,
    log: Callable[[str], None],
    *,
    on_submit: Callable[[str], None] = lambda job_id: None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Job:
    """Wait until the job of `spec`, or its last resubmission, is over, and return it.

    `on_submit` is called with each new id just before the submission. At most `times`
    resubmissions; a job that is lost after that is FAILED. While the cluster is unreachable, wait
    without limit: the state of the job is not known. Raises the cluster's error when it accepts no
    job for GIVE_UP_S after it lost one.
    """
    backoff, away = Backoff(most_s=LOOK_S), ""
    while True:
        try:
            job = await _over(dashboard, spec.submission_id)
        except (UnreachableError, AnswerError) as error:
            if away != error.what:
                away = error.what
                log(f"{ended(error.what)} Waiting for it.")
            await pause(backoff.failed(), sleep)
            continue
        backoff.worked()
        if away and job is not None:
            log("The cluster answers again.")
            away = ""
        if job is None:
            await pause(LOOK_S, sleep)
            continue
        if not was_lost(job) or times <= 0:
            return job
        times -= 1
        spec = await _again(dashboard, spec, log, on_submit, sleep)
        away = ""


async def _over(dashboard: Dashboard, job_id: str) -> Job | None:
    """Return the job when it is over.

    One that a new head does not know counts as lost, and one whose driver's node has died.
    """
    try:
        job = await dashboard.job(job_id)
    except MissingError as error:
        if _UNKNOWN not in error.body:  # an API server's: the cluster itself is not there
            raise
        return Job(job_id, "", JobStatus.FAILED, f"{LOST[0]}: the cluster's head was replaced")
    if job.status.is_over:
        return job
    return job.with_lost_driver() if await _has_lost_its_driver(dashboard, job) else None


async def _has_lost_its_driver(dashboard: Dashboard, job: Job) -> bool:
    """Return whether the driver's node has died: Ray may still list the job as RUNNING."""
    return bool(job.driver_node_id) and await dashboard.node_is_dead(job.driver_node_id)


async def _again(
    dashboard: Dashboard,
    spec: LaunchSpec,
    log: Callable[[str], None],
    on_submit: Callable[[str], None],
    sleep: Callable[[float], Awaitable[None]],
) -> LaunchSpec:
    """Send it under a new id, as often as it takes for a head that is still starting."""
    name = spec.metadata.get(submission.BUNDLED) or spec.submission_id.rpartition("-")[0]
    again = replace(
        spec,
        submission_id=submission.new_submission_id(name),
        metadata={**spec.metadata, submission.RESUMED_FROM: spec.submission_id},
        uploads=None,  # hours later, some of those files may be deleted
    )
    log(f"The cluster lost {spec.submission_id}; it continues as {again.submission_id}.")
    on_submit(again.submission_id)
    backoff, waited_s = Backoff(most_s=LOOK_S), 0.0
    while True:
        try:
            await submission.launch(dashboard, again)
        except (UnreachableError, AnswerError):
            if waited_s > GIVE_UP_S:
                raise
            waited_s += (wait_s := backoff.failed())
            await pause(wait_s, sleep)
            if await _was_taken(dashboard, again.submission_id):
                return again
        else:
            return again


async def _was_taken(dashboard: Dashboard, job_id: str) -> bool:
    """Whether a submission without a response was accepted."""
    try:
        await dashboard.job(job_id)
    except (UnreachableError, AnswerError):
        return False
    return True
