"""When the end of its job ends a run that does not report its own end. Pure.

A driver that was stopped or killed does not report how its run ended; its job does. A job can also
be lost with the head: then Ray no longer lists it. A job that was deleted has left a run that Ray
Train still calls RUNNING. The store and the summary of a recording follow the same rules here.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from cockpit.model.run import JobStatus, RunState

ENDED_WITH_JOB = {
    JobStatus.STOPPED: RunState.ABORTED,
    JobStatus.FAILED: RunState.ERRORED,
    JobStatus.SUCCEEDED: RunState.FINISHED,
}
"""The state of a run that was not over when its job ended."""
LOST = "Ray no longer lists its job: the head was replaced, and its state was lost with it"
DELETED = "Ray does not list its job: it was deleted"
JOB_LOST_AFTER_S = 10.0
"""A run is over when Ray has not listed its job for this long, although it answers. Ray refuses to
delete a job that is not over, so the GCS lost its state: the head was replaced without GCS fault
tolerance. The margin is for a GCS that is still loading its state."""
LISTED_WITHIN_S = 60.0
"""Ray lists a job before its driver starts. So a run whose job it does not list this long after the
run entered its state belongs to a job that was deleted before cockpit looked, and such a job was
over. The margin is for a list that was read just before the job was submitted, and for clocks."""


class LostJob(NamedTuple):
    since_s: float
    state: RunState
    """Of its run."""
    status: str
    message: str


class JobListing(Struct):
    """Whether Ray still lists the job of a run."""

    submission_id: str = ""
    """The id under which Ray has listed the job, now or before."""
    missing_s: float | None = None
    """Since when Ray no longer lists that job."""

    def update(
        self, at_s: float, submission_id: str, entered_s: float, *, is_listed: bool
    ) -> LostJob | None:
        """Take in one answer of Ray; return a job that is lost or was deleted.

        `submission_id` is the run's own: another one than before was submitted again. `entered_s`:
        when the run entered its state.
        """
        if is_listed:
            self.submission_id, self.missing_s = submission_id, None
        elif self.submission_id != submission_id:
            self.missing_s = None  # submitted again, and not listed yet
            if submission_id and at_s - entered_s >= LISTED_WITHIN_S:
                return LostJob(at_s, RunState.ABORTED, "deleted", DELETED)
        elif self.submission_id and self.missing_s is None:
            self.missing_s = at_s
        elif self.missing_s is not None and at_s - self.missing_s >= JOB_LOST_AFTER_S:
            return LostJob(self.missing_s, RunState.ERRORED, "lost", LOST)
        return None
