"""The distribution of a number over many ranks: quantiles, extremes, and outliers. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from cockpit.model.run import Spread

LEVELS = 5
"""Of a heat map: far below, below, usual, above, far above."""
USUAL = 2
REACH = 1.5
"""Of normal noise, one value in eighteen is beyond: a map of a healthy run has few colours."""
LEAST_SHARE = 0.05
"""Deviations below this share of the median are usual: otherwise equal ranks would show noise."""
OUTLIER_Z = 3.5
OUTLIER_SHARE = 0.1


class Distribution(Struct, frozen=True):
    """Quantiles by nearest rank, of the finite numbers."""

    count: int
    low: float
    p10: float
    p50: float
    p90: float
    high: float
    low_rank: int
    high_rank: int
    outliers: tuple[int, ...] = ()
    """Ranks, the largest deviation first; NaN and infinity before all others.

    An outlier has a modified z-score 0.6745·|x − median| / MAD above 3.5 (Iglewicz and Hoaglin, How
    to Detect and Handle Outliers, 1993), and is at least a tenth of the median away.
    """

    def level(self, value: float) -> int:
        """0 to 4, see LEVELS.

        A usual value is no farther from the median than 1.5 times the 10th or the 90th percentile;
        an extreme is twice as far as that. NaN and infinity are extremes: 0 for -infinity, else 4.
        """
        if not math.isfinite(value):
            return 0 if value == -math.inf else LEVELS - 1
        off = value - self.p50
        reach = REACH * (self.p90 - self.p50 if off > 0 else self.p50 - self.p10)
        reach = max(reach, LEAST_SHARE * abs(self.p50))
        steps = 0 if abs(off) <= reach else 1 if abs(off) <= 2 * reach else 2
        return USUAL + (steps if off > 0 else -steps)


def distribution(
    values: Sequence[tuple[int, float]], spread: Spread | None = None
) -> Distribution | None:
    """Of (rank, value). None without a finite value.

    `spread` covers all ranks at once, if `values` were sampled at different times: then the
    quantiles and the extremes are taken from it.
    """
    finite = sorted((value, rank) for rank, value in values if math.isfinite(value))
    if not finite:
        return None
    last = len(finite) - 1
    middle = finite[round(last * 0.5)][0]
    outliers = _outliers(values, finite)
    if spread is not None and math.isfinite(spread.p50):
        return Distribution(
            spread.count,
            spread.low,
            spread.p10,
            spread.p50,
            spread.p90,
            spread.high,
            spread.low_rank,
            spread.high_rank,
            outliers,
        )
    return Distribution(
        len(values),
        finite[0][0],
        finite[round(last * 0.1)][0],
        middle,
        finite[round(last * 0.9)][0],
        finite[-1][0],
        finite[0][1],
        finite[-1][1],
        outliers,
    )


def _outliers(
    values: Sequence[tuple[int, float]], finite: Sequence[tuple[float, int]]
) -> tuple[int, ...]:
    odd = [rank for rank, value in values if not math.isfinite(value)]
    middle = median(value for value, _ in finite)
    spread = median(abs(value - middle) for value, _ in finite)
    limit = max(OUTLIER_Z * spread / 0.6745, OUTLIER_SHARE * abs(middle))
    far = [(abs(value - middle), rank) for value, rank in finite if abs(value - middle) > limit]
    far.sort(key=lambda one: (-one[0], one[1]))
    return (*odd, *(rank for _, rank in far))
