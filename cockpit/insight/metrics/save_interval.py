"""How often to save: the interval between checkpoints that loses the least time.

    best = sqrt(2 * cost of a save * mean time between interruptions)
    lost(interval) = cost / interval + interval / (2 * mean time between interruptions)

J. W. Young, "A first order approximation to the optimum checkpoint interval", Communications of the
ACM 17(9), 1974; J. T. Daly, Future Generation Computer Systems 22, 2006, has the higher orders,
which matter only if a save takes nearly as long as the time between two interruptions. The time of
a restart is lost with any interval, so it is not in the formula.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from cockpit.format import duration, plural
from cockpit.insight.metrics.checkpoint import usual_interval_s
from cockpit.insight.metrics.goodput import CHECKPOINT, Goodput
from cockpit.model.run import RunSummary
from cockpit.store.run import RunView

FEWEST_SAVES = 3
NEAR = 2.0
"""An interval within this factor of the best one loses at most a quarter more."""


class SaveInterval(Struct, frozen=True):
    """Seconds. The percentages are of the training time."""

    usual_s: float
    best_s: float
    cost_s: float
    """The time for which a save blocks training."""
    interruptions: int
    """Of this run, and of recorded runs of its job with the same world size."""
    mean_between_s: float

    def lost_percent(self, interval_s: float) -> float:
        return 100.0 * (self.cost_s / interval_s + interval_s / (2.0 * self.mean_between_s))

    @property
    def is_near(self) -> bool:
        """Return whether the usual interval is about the best one."""
        return 1.0 / NEAR <= self.usual_s / self.best_s <= NEAR

    @property
    def why(self) -> str:
        """The measurements behind the best interval."""
        often = f"one every {duration(self.mean_between_s)}"
        return (
            f"a save blocks training for {duration(self.cost_s)}, "
            f"{plural(self.interruptions, 'interruption')}, {often}"
        )

    @property
    def text(self) -> str:
        """The comparison of the usual interval with the best one, for people."""
        now = f"every {duration(self.usual_s)} (now) loses {self.lost_percent(self.usual_s):.1f} %"
        if self.is_near:
            return f"{now}, about the least possible"
        best = f"every {duration(self.best_s)} would lose {self.lost_percent(self.best_s):.1f} %"
        return f"{best}, {now}"


def save_interval(
    run: RunView, found: Goodput, others: Sequence[RunSummary]
) -> SaveInterval | None:
    """None before the run has saved a few times, or if nothing has ever interrupted this job.

    `found`: of this run. `others`: recorded runs of the same job.
    """
    usual_s, saves = usual_interval_s(run), run.checkpoint_count
    if saves < FEWEST_SAVES or usual_s <= 0:
        return None
    size = len(run.ranks)
    alike = [it for it in others if it.world_size == size and it.started_s and it.ended_s]
    covered_s = found.wall_s + sum((it.ended_s or 0.0) - (it.started_s or 0.0) for it in alike)
    interruptions = sum(max(0, it.attempts - 1) for it in alike)
    interruptions += max(0, len(run.attempts) - 1)
    cost_s = found.lost_s.get(CHECKPOINT, 0.0) / saves
    if not interruptions or cost_s <= 0 or covered_s <= 0:
        return None
    between_s = covered_s / interruptions
    return SaveInterval(
        usual_s, math.sqrt(2.0 * cost_s * between_s), cost_s, interruptions, between_s
    )
