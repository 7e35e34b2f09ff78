"""Statistics that a few wild values cannot move: medians, their spread, and slopes."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from cockpit.store.series import Series

SIGMA_OF_MAD = 1.4826
"""The MAD of normal noise times this is its standard deviation (Rousseeuw & Croux 1993)."""


def median(values: Iterable[float]) -> float:
    """Return the median; NaN without values. The caller must remove NaNs."""
    ordered = sorted(values)
    half, odd = divmod(len(ordered), 2)
    if not ordered:
        return math.nan
    return ordered[half] if odd else (ordered[half - 1] + ordered[half]) / 2


def spread(values: Sequence[float], centre: float | None = None) -> float:
    """The standard deviation, estimated as 1.4826 times the median absolute deviation."""
    middle = median(values) if centre is None else centre
    return SIGMA_OF_MAD * median(abs(value - middle) for value in values)


def finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def window(
    series: Series, since_s: float, until_s: float = math.inf
) -> tuple[list[float], list[float]]:
    """Times and values of the finite points with `since_s` <= time <= `until_s`."""
    first = bisect_left(series.times, since_s)
    last = bisect_right(series.times, until_s)
    times, values = series.times[first:last], series.values[first:last]
    if all(map(math.isfinite, values)):
        return list(times), list(values)
    kept = [(t, v) for t, v in zip(times, values, strict=True) if math.isfinite(v)]
    return [t for t, _ in kept], [v for _, v in kept]


def blocks(
    times: Sequence[float], values: Sequence[float], count: int
) -> list[tuple[float, float]]:
    """The points cut into at most `count` runs of neighbours: the median time and value of each."""
    size = max(1, math.ceil(len(values) / count))
    return [
        (median(times[at : at + size]), median(values[at : at + size]))
        for at in range(0, len(values), size)
    ]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between any two points, in units a second (Theil 1950, Sen 1968).

    NaN with fewer than two distinct times. Quadratic in the points: give it blocks.
    """
    return median(
        (later - earlier) / (b - a)
        for at, (a, earlier) in enumerate(points)
        for b, later in points[at + 1 :]
        if b > a
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank quantile of ascending values; NaN without values."""
    return ordered[round((len(ordered) - 1) * share)] if ordered else math.nan
