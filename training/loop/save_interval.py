"""When to save with `checkpoint_every=auto`: at the interval that loses the least time.

    interval = sqrt(2 * cost of a save * mean time between interruptions)

J. W. Young, "A first order approximation to the optimum checkpoint interval", Communications of the
ACM 17(9), 1974. The cost of a save includes its evaluation. It is measured, and so are the
interruptions of the run; until the first one, the mean time is that of a published run.
"""

from __future__ import annotations

import math
import time
from statistics import fmean

from training.loop.progress import Progress
from training.loop.world import World

FIRST_STEPS = 50
"""Steps until the first save of an attempt, whose cost is not known before."""
BETWEEN_RANK_S = 54 * 86_400 * 16_384 / 419
"""The mean time between interruptions of a run with one GPU: "The Llama 3 Herd of Models" (2024)
had 419 unexpected interruptions in 54 days on 16,384 GPUs (section 3.3.4)."""


class SaveInterval:
    """The plan of one attempt."""

    def __init__(self, progress: Progress, world: World) -> None:
        self._progress, self._world = progress, world
        self._next = progress.step + FIRST_STEPS
        self._counted_s = time.monotonic()
        self._planned = (progress.step, self._counted_s)
        self._costs_s: list[float] = []

    def is_due(self, step: int) -> bool:
        """Return whether the state after this step should be saved."""
        return step >= self._next

    def count_time(self) -> None:
        """Add the time since the last call to the progress, before its state is saved."""
        before_s, self._counted_s = self._counted_s, time.monotonic()
        self._progress.trained_s += self._counted_s - before_s

    def plan(self, cost_s: float) -> None:
        """Plan the next save, after one that blocked training for `cost_s`.

        Call it on every rank: the plan of rank 0 holds for all.
        """
        step, at_s = self._planned
        self._planned = (self._progress.step, time.monotonic())
        step_s = max(1e-6, self._planned[1] - at_s - cost_s) / max(1, self._planned[0] - step)
        self._costs_s.append(cost_s)
        steps = max(1.0, best_interval_s(fmean(self._costs_s), self.between_s) / step_s)
        self._next = self._progress.step + round(self._world.gather(steps)[0])

    @property
    def between_s(self) -> float:
        """The mean time between interruptions."""
        if self._progress.interruptions:
            return self._progress.trained_s / self._progress.interruptions
        return BETWEEN_RANK_S / self._world.size


def best_interval_s(cost_s: float, between_s: float) -> float:
    return math.sqrt(2.0 * cost_s * between_s)
