"""Questions about the trials of an experiment. Pure: they read and return."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cockpit.model.run import Trial
from cockpit.store.store import Experiment


def best(experiment: Experiment) -> Trial | None:
    """The trial whose newest result is best by the experiment's own metric and mode."""
    first = next(iter(in_order(experiment)), None)
    return first if first is not None and _is_known(experiment, first) else None


def in_order(experiment: Experiment) -> list[Trial]:
    """The best first, by the experiment's metric and mode; then those without a result, by id."""
    sign = -1.0 if experiment.mode == "max" else 1.0

    def place(trial: Trial) -> tuple[int, float, str]:
        if not _is_known(experiment, trial):
            return 1, 0.0, trial.id
        return 0, sign * trial.metrics[experiment.metric], trial.id

    return sorted(experiment.trials.values(), key=place)


def varied(trials: Sequence[Trial]) -> list[str]:
    """The parameters that the trials differ in; of a single trial, all."""
    names = sorted({name for trial in trials for name in trial.config})
    if len(trials) < 2:
        return names
    return [name for name in names if len({trial.config.get(name) for trial in trials}) > 1]


def _is_known(experiment: Experiment, trial: Trial) -> bool:
    """Whether the trial has a number to compare, and a direction (min or max) is set."""
    value = trial.metrics.get(experiment.metric, math.nan)
    return math.isfinite(value) and experiment.mode in ("min", "max")
