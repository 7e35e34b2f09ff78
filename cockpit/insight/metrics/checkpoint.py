"""What would be lost if the run were killed now.

    steps        newest step - step of the newest checkpoint
    seconds      newest sample - the time of the newest checkpoint, or of the attempt's first step
    GPU-seconds  seconds * GPUs of the attempt

If a checkpoint has no step, its age divided by the step time is used. A checkpoint is old once its
age passes 30 minutes and three times the usual interval.
"""

from __future__ import annotations

import math
from itertools import pairwise

from msgspec import Struct

from cockpit.format import in_minutes, plural
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.progress import gpus_of, newest_s, stepping_since
from cockpit.insight.metrics.robust_statistics import finite, median
from cockpit.model.alert import Finding, Severity
from cockpit.store.run import RunView

_INTERVALS = 20


class UnsavedWork(Struct, frozen=True):
    """Lost if killed now."""

    steps: int | None
    seconds: float
    gpu_seconds: float
    """0 without GPUs."""
    age_s: float | None
    """Of the newest checkpoint, at the newest sample; None without one."""


def at_risk(run: RunView) -> UnsavedWork | None:
    """None while the run does not step: what it had is lost already, or safe."""
    since, newest = stepping_since(run), newest_s(run)
    if since is None or newest is None:
        return None
    saved = run.checkpoint_s
    # After a restart, earlier work is in the checkpoint or lost: only this attempt counts.
    begin = max(since, saved or since)
    seconds = max(0.0, newest - begin)
    return UnsavedWork(
        _steps(run, seconds),
        seconds,
        seconds * gpus_of(run),
        None if saved is None else max(0.0, newest - saved),
    )


def _steps(run: RunView, seconds: float) -> int | None:
    step, attempt = run.step, run.attempt
    if step is None or attempt is None or attempt.first_step is None:
        return None
    if run.checkpoint is None:
        return max(0, step - attempt.first_step + 1)
    if run.checkpoint.step is not None:
        return max(0, step - run.checkpoint.step)
    recent = finite(run.curves["step_time_s"].values[-60:])
    step_s = median(recent) if recent else 0.0
    steps = seconds / step_s if step_s > 0 else math.inf
    return round(steps) if math.isfinite(steps) else None


def find(run: RunView, limits: Thresholds) -> list[Finding]:
    """`old-checkpoint`, and `no-checkpoint` for a run that never saved one."""
    risk = at_risk(run)
    if risk is None:
        return []
    limit = max(limits.checkpoint_age_s, limits.checkpoint_intervals * usual_interval_s(run))
    if risk.seconds <= limit:
        return []
    lost = f"{plural(risk.steps, 'step')}, " if risk.steps is not None else ""
    gpu = f", {risk.gpu_seconds / 3600:.1f} GPU-hours" if risk.gpu_seconds else ""
    none = run.checkpoint is None
    return [
        Finding(
            "no-checkpoint" if none else "old-checkpoint",
            f"run {run.id}",
            Severity.WARNING,
            f"{'No checkpoint yet' if none else 'The newest checkpoint is old'}: "
            f"{lost}{in_minutes(risk.seconds, 0)}{gpu} would be lost if the run were killed now",
            f"Threshold {in_minutes(limit, 0)}: {in_minutes(limits.checkpoint_age_s, 0)}, or "
            f"{limits.checkpoint_intervals:g} usual intervals",
            "Save more often, and check the log for failed saves",
            run.id,
        )
    ]


def usual_interval_s(run: RunView) -> float:
    """The median time between two of the newest checkpoints; 0 with fewer than two."""
    times = [at_s for at_s, _ in run.checkpoints[-_INTERVALS:]]
    gaps = [b - a for a, b in pairwise(times)]
    return median(gaps) if gaps else 0.0
