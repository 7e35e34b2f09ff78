"""Whether a cluster can ever have the capacity for a job's workers. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from cockpit.format import plural, verb
from cockpit.launch.job import bundled_job
from cockpit.launch.submission import BUNDLED, LaunchSpec
from cockpit.model.cluster import Resources, WorkerGroup
from cockpit.model.run import Job, JobStatus

ALONE = frozenset({"baseline"})
"""Jobs whose number of workers is one to calculate with: they take one process."""


def shortage(spec: LaunchSpec, groups: Iterable[WorkerGroup]) -> str:
    """Describe what the groups lack at their maximum; empty when they have enough or it is unknown.

    Unknown: for the user's own command, or for a cluster whose groups are not known. The workers of
    a pod are its CPUs or GPUs, whichever are more, so that a reported lack holds for both; fewer,
    if each worker reserves more than one.
    """
    told = list(groups)
    wanted = workers(spec)
    each = reserved(spec)
    room = sum(it.max * _per_pod(it.resources, each) for it in told)
    if wanted is None or not told or wanted <= room:
        return ""
    pods = sum(it.max for it in told)
    takes = " and ".join(plural(count, name) for name, count in each.items())
    return (
        f"{wanted} workers take {takes or 'a CPU or GPU'} each, and the worker groups have room "
        f"for {room} at most ({plural(pods, 'pod')}): the job would wait."
    )


def _per_pod(there: Resources, each: Mapping[str, float]) -> int:
    counts = {"CPU": there.cpus, "GPU": there.gpus}
    if not each:
        return math.ceil(max(counts.values()))
    return min(times(counts[name], count) for name, count in each.items())


def times(there: float, each: float) -> int:
    """How often `each` fits; 0.6 / 0.2 is a little below 3."""
    return int(there / each + 1e-9)


def reserved(spec: LaunchSpec) -> dict[str, float]:
    """CPUs and GPUs that each worker reserves, as far as they are in the settings."""
    given = settings(spec)
    flags = {"CPU": "cpus-per-worker", "GPU": "gpus-per-worker"}
    return {
        name: count for name, flag in flags.items() if (count := float(given.get(flag, "0"))) > 0
    }


def settings(spec: LaunchSpec) -> dict[str, str]:
    """The settings of a bundled job by flag; of another command, nothing."""
    if not spec.metadata.get(BUNDLED):
        return {}
    return dict(word[2:].split("=", 1) for word in spec.entrypoint if word.startswith("--"))


def workers(spec: LaunchSpec) -> int | None:
    """How many must be there for the job to begin; None where that is not known."""
    name = spec.metadata.get(BUNDLED, "")
    if not name or name in ALONE or not (job := bundled_job(name)).has("workers"):
        return None
    given = settings(spec)
    counts = [
        int(given.get(one.replace("_", "-"), job.setting(one).default_text))
        for one in ("min_workers", "workers")
        if job.has(one)
    ]
    return next((count for count in counts if count > 0), None)


def beside(jobs: Sequence[Job]) -> str:
    """Describe the running jobs; empty without any.

    A job that waits for the resources of another job looks like one that makes no progress.
    """
    others = [job.id for job in jobs if job.status is JobStatus.RUNNING]
    if not others:
        return ""
    which = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
    runs = verb(len(others), "are")
    return (
        f"{which} {runs} also running on this cluster: a rank waits until a CPU or GPU is free. "
        "See: cockpit jobs"
    )
