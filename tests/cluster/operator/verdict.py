"""The result of a step of a RayJob: too late, failed, to be retried; with its times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cluster.operator.rayjob import RayJob

_NO_RETRY = ("DeadlineExceeded", "JobStatusCheckTimeoutExceeded")


def count(job: RayJob, after: dict[str, Any]) -> None:
    """Tries that succeeded and failed; a failure becomes a retry while some are left."""
    failed, succeeded = after.get("failed", 0), after.get("succeeded", 0)
    state, before = after.get("jobDeploymentStatus"), job.said("jobDeploymentStatus")
    if state != before:
        failed += state == "Failed"
        succeeded += state == "Complete" and after.get("jobStatus") == "SUCCEEDED"
    after |= {"failed": failed, "succeeded": succeeded}
    again = failed <= job.backoff_limit and after.get("reason") not in _NO_RETRY
    if state == "Failed" and before != "Failed" and again:
        after["jobDeploymentStatus"] = "Retrying"


def fail(after: dict[str, Any], reason: str, message: str) -> None:
    after |= {"jobDeploymentStatus": "Failed", "reason": reason, "message": message}


def too_late(job: RayJob) -> bool:
    return job.deadline_s is not None and passed(job.said("startTime"), job.deadline_s)


def passed(since: str, seconds: float) -> bool:
    return datetime.now(UTC) >= datetime.fromisoformat(since) + timedelta(seconds=seconds)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
