"""The submitted job of this driver."""

from __future__ import annotations


def submission() -> str:
    """The submission id, which the job's supervisor passes to the driver as job metadata; or ''."""
    from ray._private.worker import global_worker

    return str(global_worker.core_worker.get_job_config().metadata.get("job_submission_id", ""))
