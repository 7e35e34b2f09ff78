"""A run in a few numbers, to compare later runs with."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from cockpit.insight.metrics.goodput import goodput
from cockpit.insight.metrics.progress import gpus_of, newest_s
from cockpit.insight.metrics.robust_statistics import median, window
from cockpit.model.run import Job, RunSummary
from cockpit.store.run import RunView
from cockpit.store.selectors import step_of
from cockpit.store.store import Store

BUNDLED = "cockpit.job"
"""The job's metadata with the name of a bundled job (see cockpit.launch)."""
_FEWEST = 5
_CHANGING = re.compile(r"\S*(?:/tmp/|_ray_pkg_|raysubmit_)\S*|\b[0-9a-f]{16,}\b|\d{4}-\d\d-\d\d\S*")
"""Temporary paths, submission ids, hashes and dates in a command line."""


def summary(store: Store, run: RunView) -> RunSummary:
    """The current state; of a run that is over, the last one."""
    reported = [at_s for at_s in (newest_s(run), run.reported_s) if at_s is not None]
    end = run.ended_s if run.ended_s is not None else max(reported, default=None)
    found = goodput(run, end) if end is not None else None
    return RunSummary(
        run_id=run.id,
        name=run.name,
        job=job_of(store, run),
        state=run.state,
        world_size=run.world_size,
        gpus=float(gpus_of(run)),
        started_s=run.started_s or None,
        ended_s=run.ended_s,
        attempts=len(run.attempts),
        steps=step_of(run) or 0,
        samples_per_s=_steady(run, "samples_per_s"),
        step_time_s=_steady(run, "step_time_s"),
        loss=_last_loss(run),
        goodput_percent=found.percent if found is not None else None,
        submission_id=run.submission_id,
        cluster=str(store.ref or ""),
    )


def job_of(store: Store, run: RunView) -> str:
    """The bundled job's name, or the command line without what changes from time to time."""
    job = store.jobs.get(run.submission_id)
    return run.name if job is None else name_of(job)


def others_of_job(store: Store, run: RunView, past: Sequence[RunSummary]) -> list[RunSummary]:
    """The recorded runs of the same job; `past` may hold runs of other jobs, and this one."""
    job = job_of(store, run)
    return [it for it in past if it.job == job and it.run_id != run.id]


def name_of(job: Job) -> str:
    """The same for a job, whether or not it has a run."""
    return job.metadata.get(BUNDLED) or " ".join(_CHANGING.sub("", job.entrypoint).split())


def _steady(run: RunView, name: str) -> float | None:
    """The median over the newest attempt that has enough, without the first tenth of it."""
    for number in sorted(run.attempts, reverse=True):
        view = run.attempts[number]
        if view.first_step_s is None:
            continue
        end = view.ended_s if view.ended_s is not None else math.inf
        _, values = window(run.curves[name], view.first_step_s, end)
        steady = values[len(values) // 10 :]
        if len(steady) >= _FEWEST:
            return median(steady)
    return None


def _last_loss(run: RunView) -> float | None:
    last = run.curves["loss"].last
    return run.metrics.get("loss") if last is None else last
