"""Whether a cluster can ever have room for a job's workers. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from cockpit.format import plural
from cockpit.launch.job import bundled_job
from cockpit.launch.submission import BUNDLED, LaunchSpec
from cockpit.model.cluster import WorkerGroup
from cockpit.model.run import Job, JobStatus

ALONE = frozenset({"baseline"})
"""Jobs whose number of workers is one to calculate with: they take one process."""


def shortage(spec: LaunchSpec, groups: Iterable[WorkerGroup]) -> str:
    """What the groups lack at their largest, in a sentence; empty when they have it, or where
    it is unknown: for the user's own command, or for a cluster whose groups are not known.

    A pod counts as many workers as it has CPUs or GPUs, whichever are more, so that what is
    reported as too little is so for either.
    """
    told = list(groups)
    wanted = workers(spec)
    room = sum(it.max * math.ceil(max(it.resources.cpus, it.resources.gpus)) for it in told)
    if wanted is None or not told or wanted <= room:
        return ""
    pods = sum(it.max for it in told)
    return (
        f"{wanted} workers take a CPU or GPU each, and the worker groups have room for {room} at "
        f"most ({plural(pods, 'pod')}): the job would wait."
    )


def workers(spec: LaunchSpec) -> int | None:
    """How many must be there for the job to begin; None where that is not known."""
    name = spec.metadata.get(BUNDLED, "")
    if not name or name in ALONE or not (job := bundled_job(name)).has("workers"):
        return None
    given = dict(word[2:].split("=", 1) for word in spec.entrypoint if word.startswith("--"))
    counts = [
        int(given.get(one.replace("_", "-"), job.setting(one).default_text))
        for one in ("min_workers", "workers")
        if job.has(one)
    ]
    return next((count for count in counts if count > 0), None)


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
