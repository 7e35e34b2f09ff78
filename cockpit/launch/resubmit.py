"""A job that is submitted again when the cluster lost it, by a process that stays for it.

A driver runs on the head as a rule and dies with it, and the new head does not know the job:
Ray keeps its jobs in the head's memory unless it has an external store. The same command with the
same run name continues from the newest checkpoint, so it only has to be sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from cockpit.launch import submission
from cockpit.launch.submission import LaunchSpec
from cockpit.model.error import UnreachableError
from cockpit.model.run import Job, JobStatus
from cockpit.sources.polling.backoff import Backoff
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import AnswerError, MissingError

LOOK_S = 1.0
LOST = ("Job supervisor actor died", "Unexpected error occurred: failed to get job supervisor")
"""How Ray 2.60's message on a failed job begins when its driver was taken from it
(`job_manager.py`).

A script that failed by itself has another message: sending it again would only fail again.
"""
GIVE_UP_S = 1800.0
"""A cluster that takes no job for so long after it lost one is not waited for any longer."""
_UNKNOWN = "does not exist"
"""Ray's answer, with 404, of a job that it does not know."""


def was_lost(job: Job) -> bool:
    """Its driver's process or node died, through no fault of the script."""
    return job.status is JobStatus.FAILED and job.message.startswith(LOST)


async def stay(
    dashboard: Dashboard,
    spec: LaunchSpec,
    times: int,
    log: Callable[[str], None],
    *,
    on_submit: Callable[[str], None] = lambda job_id: None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Job:
    """Until the job that was submitted by `spec`, or the last after it, is over: that one.

    `on_submit` is called with each new id just before it is sent.

    Sends it again at most `times` times; one that is lost again after that is FAILED.
    A cluster that does not answer is waited for, without end: what became of it is not known yet.
    Raises the cluster's error when it takes no job for GIVE_UP_S after it lost one.
    """
    backoff, away = Backoff(), ""
    while True:
        try:
            job = await _over(dashboard, spec.submission_id)
        except (UnreachableError, AnswerError) as error:
            if away != error.what:
                away = error.what
                log(f"{error.what}: waiting for it.")
            await sleep(backoff.failed())
            continue
        backoff.worked()
        if away and job is not None:
            log("The cluster answers again.")
            away = ""
        if job is None:
            await sleep(LOOK_S)
            continue
        if not was_lost(job) or times <= 0:
            return job
        times -= 1
        spec = await _again(dashboard, spec, log, on_submit, sleep)
        away = ""


async def _over(dashboard: Dashboard, job_id: str) -> Job | None:
    """The job once it is over; one that a new head does not know counts as lost."""
    try:
        job = await dashboard.job(job_id)
    except MissingError as error:
        if _UNKNOWN not in error.body:  # an API server's: the cluster itself is not there
            raise
        return Job(job_id, "", JobStatus.FAILED, f"{LOST[0]}: the cluster's head was replaced")
    return job if job.status.is_over else None


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
    )
    log(f"The cluster lost {spec.submission_id}; it continues as {again.submission_id}.")
    on_submit(again.submission_id)
    backoff, waited_s = Backoff(), 0.0
    while True:
        try:
            await submission.launch(dashboard, again)
        except (UnreachableError, AnswerError):
            if waited_s > GIVE_UP_S:
                raise
            waited_s += (wait_s := backoff.failed())
            await sleep(wait_s)
            if await _was_taken(dashboard, again.submission_id):
                return again
        else:
            return again


async def _was_taken(dashboard: Dashboard, job_id: str) -> bool:
    """Whether a submission whose answer was lost has come through after all."""
    try:
        await dashboard.job(job_id)
    except (UnreachableError, AnswerError):
        return False
    return True
