"""Which trials continue, are stopped, or adopt the weights of others.

Time is the epoch that a trial reports. How the schedulers decide: ray/tune/schedulers of Ray 2.60,
after Li et al. 2018 (ASHA: arXiv 1810.05934, HyperBand: 1603.06560), Golovin et al. 2017 (median
stopping, in Google Vizier) and Jaderberg et al. 2017 (population based training: 1711.09846).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ray.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)

from training.search.settings import SearchSettings
from training.search.space import Draw, mutations, within

EPOCH = "epoch"


class Bands(HyperBandScheduler):  # type: ignore[misc]
    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """Tune also calls this for a restarted trial, and HyperBand would then drop it, and fail at
        its next result (Ray 2.60, TuneController._requeue_trial, _Bracket).
        """
        if not trial.should_recover():
            super().on_trial_error(tune_controller, trial)


class Population(PopulationBasedTraining):  # type: ignore[misc]
    """All trials wait for the slowest before any adopts another's weights: so the same seed gives
    the same search, and no checkpoint is deleted before its user has read it.
    """

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """The others may be waiting only for the failed trial; Ray would let them wait."""
        super().on_trial_error(tune_controller, trial)
        if trial.should_recover():
            return
        failed = self._trial_state[trial]
        failed.last_score, failed.last_train_time = None, self._next_perturbation_sync
        waiting = [item for item in tune_controller.get_live_trials() if item is not trial]
        if waiting and all(item.status == item.PAUSED for item in waiting):
            self.on_trial_result(tune_controller, waiting[0], waiting[0].last_result)


def scheduler(settings: SearchSettings, epochs: int, mode: str, draws: Sequence[Draw]) -> Any:
    """The scheduler that the settings name. `mode`: max or min."""
    aim = {"metric": settings.metric, "mode": mode}
    match settings.scheduler:
        case "asha":
            return ASHAScheduler(
                EPOCH,
                **aim,
                max_t=epochs,
                grace_period=settings.grace_epochs,
                reduction_factor=settings.reduction,
            )
        case "hyperband":
            return Bands(EPOCH, **aim, max_t=epochs, reduction_factor=settings.reduction)
        case "median":
            return MedianStoppingRule(EPOCH, **aim, grace_period=settings.grace_epochs)
        case "pbt":
            return Population(
                EPOCH,
                **aim,
                perturbation_interval=settings.exploit_every_epochs,
                hyperparam_mutations=mutations(draws),
                custom_explore_fn=partial(within, draws=draws),
                synch=True,
            )
    return FIFOScheduler()
