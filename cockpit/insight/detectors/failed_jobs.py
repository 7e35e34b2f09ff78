"""Jobs that failed and were not launched again.

failed job FAILED, ended in the last 30 min, and no job of its name was submitted after it

A job that fails before it trains has no run, and the alerts of a run are cleared when it is over.
So this alert is of the job, and raised once, whether or not it had a run. The name of a job is that
of the bundled job, else the command line without the parts that change.
"""

from __future__ import annotations

from cockpit.format import in_minutes
from cockpit.insight.causes.text import advice
from cockpit.insight.causes.types import Category
from cockpit.insight.causes.verdict import cause_of_job
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.summary import name_of
from cockpit.model.alert import Finding, Severity
from cockpit.model.run import Job, JobStatus
from cockpit.model.text import one_line
from cockpit.store.store import Store

KIND = "failed-job"


def find(store: Store, now_s: float, limits: Thresholds) -> list[Finding]:
    """The job that failed last is first."""
    if not any(_has_just_failed(job, now_s, limits) for job in store.jobs.values()):
        return []  # at most this number of names
    newest: dict[str, Job] = {}
    for job in store.jobs.values():
        name = name_of(job)
        before = newest.get(name)
        if before is None or _submitted_s(job) >= _submitted_s(before):
            newest[name] = job
    failed = [job for job in newest.values() if _has_just_failed(job, now_s, limits)]
    failed.sort(key=lambda job: -(job.ended_s or 0.0))
    return [_finding(store, job, limits) for job in failed]


def _has_just_failed(job: Job, now_s: float, limits: Thresholds) -> bool:
    return (
        job.status is JobStatus.FAILED
        and job.ended_s is not None
        and now_s - job.ended_s <= limits.failed_job_s
    )


def _submitted_s(job: Job) -> float:
    """A job that waits to be started is newer than all that were."""
    if job.started_s is not None:
        return job.started_s
    return job.ended_s if job.ended_s is not None else float("inf")


def _finding(store: Store, job: Job, limits: Thresholds) -> Finding:
    """With the cause, if it is known, else with the end of Ray's message."""
    cause = cause_of_job(store, job)
    shown = f"shown for {in_minutes(limits.failed_job_s)}, or until launched again"
    if cause is None or cause.category is Category.UNKNOWN:
        reason = last_line(job.message)
        what = f"Job {job.id} failed" + (f": {reason}" if reason else "")
        why, todo = f"Reported by Ray; {shown}", ""
    else:
        what = f"Job {job.id} failed, {cause.category.value}: {cause.quote or cause.sentence}"
        why = f"{cause.sentence} Confidence {cause.confidence.value}; {shown}"
        todo = f"{advice(cause)} "
    subject = f"job {job.id}"
    todo += f"Read its log: cockpit logs {job.id}"
    return Finding(KIND, subject, Severity.WARNING, what, why, todo)


def last_line(message: str) -> str:
    """The end of a traceback, or of a log, has the reason."""
    lines = [line for part in message.splitlines() if (line := one_line(part))]
    return lines[-1] if lines else ""
