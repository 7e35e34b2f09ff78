"""Points of a curve prepared for drawing and statistics: gaps, decimation, quantiles. Pure.

A stored curve is thinned with age, so its points cover unequal times: an average over time is
weighted by the time that each point covers.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

GAP_FACTOR = 4.0
"""Points further apart than this many of the usual intervals around them are not joined."""
LEAST_GAP_S = 5.0
"""Nothing shorter is a gap: in a stream with one record a second, one is late now and then."""
AROUND = 24
"""Intervals on either side that are considered: thinned parts have longer ones."""
USUAL = 0.9
"""The part of these intervals that are at most as long as the usual one. Not half of them: ranks
may report one after the other within a second, then nothing until the next."""

Point = tuple[float, float]


def gaps(
    times: Sequence[float], begin: int = 0, end: int | None = None, least: float = LEAST_GAP_S
) -> list[int]:
    """The points from `begin` to before `end` between which and the one before data is missing.

    The interval before such a point is longer than `least`, and than GAP_FACTOR times the usual
    one on either side: at an edge of thinning the sides differ.
    """
    first = max(1, begin)
    before = max(0, first - 1 - AROUND)
    around = times[before : None if end is None else end + AROUND]
    steps = [b - a for a, b in pairwise(around)]  # before the points before + 1, before + 2, …
    own = steps[first - 1 - before : None if end is None else end - 1 - before]
    if not own or max(own) <= least:
        return []
    shortest = min((step for step in steps if step > 0), default=0.0)
    least = max(least, GAP_FACTOR * shortest)  # no usual interval is shorter than that
    return [
        at
        for at, step in enumerate(own, first)
        if step > least and _is_unusual(steps, at - 1 - before)
    ]


def _is_unusual(steps: Sequence[float], at: int) -> bool:
    limit = steps[at] / GAP_FACTOR
    if min(steps[max(0, at - 2) : at], default=0.0) >= limit:
        return False  # the usual interval before it is at least as long: needs no closer look
    sides = (steps[max(0, at - AROUND) : at], steps[at + 1 : at + 1 + AROUND])
    return all(sorted(side)[int(USUAL * (len(side) - 1))] < limit for side in sides if side)


def segments(
    times: Sequence[float], values: Sequence[float], breaks: Sequence[float] = ()
) -> Iterator[list[Point]]:
    """The finite stretches of a curve: split at gaps, at what is not finite, and at `breaks`."""
    part: list[Point] = []
    missing = set(gaps(times))
    for at, (at_s, value) in enumerate(zip(times, values, strict=True)):
        torn = at > 0 and (at in missing or _crosses(times[at - 1], at_s, breaks))
        if part and (torn or not math.isfinite(value)):
            yield part
            part = []
        if math.isfinite(value):
            part.append((at_s, value))
    if part:
        yield part


def _crosses(begin_s: float, end_s: float, breaks: Sequence[float]) -> bool:
    at = bisect_right(breaks, begin_s)
    return at < len(breaks) and breaks[at] <= end_s


def thinned(part: Sequence[Point], begin_s: float, end_s: float, buckets: int) -> list[Point]:
    """First, lowest, highest and last point of each of `buckets` slices: looks the same, is small.

    (M4: Jugel et al., "M4: a visualization-oriented time series data aggregation", VLDB 2014.)
    """
    if len(part) < 4 or end_s <= begin_s:
        return list(part)
    times = [at_s for at_s, _ in part]
    width = (end_s - begin_s) / buckets
    if len(part) <= 2 * (times[-1] - times[0]) / width:
        return list(part)
    kept: list[Point] = []
    at = 0
    while at < len(part):
        bucket = math.floor((times[at] - begin_s) / width)
        stop = max(at + 1, bisect_left(times, begin_s + (bucket + 1) * width, at))
        inside = part[at:stop]
        by_value = sorted(range(len(inside)), key=lambda index: inside[index][1])
        chosen = sorted({0, by_value[0], by_value[-1], len(inside) - 1})
        kept += [inside[index] for index in chosen]
        at = stop
    return kept


def not_finite(times: Sequence[float], values: Sequence[float]) -> list[float]:
    """When the curve was NaN or infinite."""
    return [at for at, value in zip(times, values, strict=True) if not math.isfinite(value)]


def weighted(times: Sequence[float], values: Sequence[float]) -> list[Point]:
    """Finite values with the seconds that each covers: the way from the point before it.

    The first point, and one after a gap, covers as long as its next neighbour does.
    """
    found: list[Point] = []
    missing = {0, *gaps(times)}
    for at, value in enumerate(values):
        if not math.isfinite(value):
            continue
        if at not in missing:
            weight = times[at] - times[at - 1]
        elif at + 1 < len(times) and at + 1 not in missing:
            weight = times[at + 1] - times[at]
        else:
            weight = 1.0
        found.append((value, max(weight, 1e-9)))
    return found


def quantile(weights: Sequence[Point], q: float) -> float | None:
    """The weighted `q` quantile (0 to 1), or None without values."""
    if not weights:
        return None
    ordered = sorted(weights)
    wanted = q * math.fsum(weight for _, weight in ordered)
    passed = 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= wanted:
            return value
    return ordered[-1][0]


def between(
    times: Sequence[float], values: Sequence[float], periods: Sequence[tuple[float, float]]
) -> tuple[list[float], list[float]]:
    """The points whose time is within one of the periods (begin, end), both included."""
    kept_times: list[float] = []
    kept_values: list[float] = []
    for begin_s, end_s in periods:
        first, last = bisect_left(times, begin_s), bisect_right(times, end_s)
        kept_times += times[first:last]
        kept_values += values[first:last]
    return kept_times, kept_values
