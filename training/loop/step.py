"""What a step ends with, in the loop of a rank and in that of a replica."""

from __future__ import annotations

import time
from dataclasses import dataclass

from training.loop.progress import Progress
from training.loop.settings import TrainSettings
from training.techniques.schedule import Schedule


def update(progress: Progress, schedule: Schedule) -> float:
    """Change the weights by their gradients, in the step that `progress` is about to count.

    Returns its learning rate.
    """
    learning_rate = schedule.rate(progress.epoch * progress.steps + progress.batch)
    for group in progress.optimizer.param_groups:
        group["lr"] = learning_rate
    progress.precision.step(progress.optimizer)
    progress.optimizer.zero_grad()
    progress.average.update()
    return learning_rate


@dataclass(frozen=True, slots=True)
class Due:
    """What follows the step that is about to be counted."""

    epoch_ends: bool
    training_ends: bool
    saves: bool
    """The state is saved, and evaluated before."""

    @property
    def evaluates(self) -> bool:
        return self.epoch_ends or self.saves


def after_step(settings: TrainSettings, progress: Progress) -> Due:
    """By number of steps and epochs; `checkpoint_every=auto` is up to the loop."""
    step, every = progress.step + 1, settings.checkpoint_every_steps
    epoch_ends = progress.batch + 1 == progress.steps
    ends = step == settings.max_steps or (epoch_ends and progress.epoch + 1 == settings.epochs)
    saves = (
        ends
        or (epoch_ends and (progress.epoch + 1) % settings.save_every_epochs == 0)
        or (every > 0 and step % every == 0)
    )
    return Due(epoch_ends, ends, saves)


class Pace:
    """The shortest time between two steps."""

    def __init__(self, min_step_s: float) -> None:
        self._min_step_s = min_step_s
        self._began_s = time.perf_counter()

    def wait(self) -> None:
        """Until the step may end."""
        if self._min_step_s:
            time.sleep(max(0.0, self._began_s + self._min_step_s - time.perf_counter()))
            self._began_s = time.perf_counter()
