"""What a launch finds on the cluster."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.model.run import Job, JobStatus


def beside(jobs: Sequence[Job]) -> str:
    """Those that run, in a sentence; empty when none does.

    A job whose ranks wait for another's to end looks like one that does nothing.
    """
    others = [job.id for job in jobs if job.status is JobStatus.RUNNING]
    if not others:
        return ""
    which = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
    runs = "runs" if len(others) == 1 else "run"
    return f"{which} {runs} there too: a rank waits until a CPU or GPU is free (cockpit jobs)."
