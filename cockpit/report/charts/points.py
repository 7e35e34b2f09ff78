"""Points of a curve made ready to draw or to sum up: gaps, decimation, quantiles over time. Pure.

A stored curve is thinned with age, so its points cover unequal times: an average over time is
weighted by the time that each point covers.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

GAP_FACTOR = 4.0
"""Points further apart than this many of the intervals around them are not joined."""
LEAST_GAP_S = 3.0
"""Jitter of a stream with one record a second is no gap."""
AROUND = 24
"""Intervals on either side that are considered: thinned parts have longer ones."""
USUAL = 0.9
"""The part of these intervals that are at most as long as the usual one. Not half of them: ranks
may report one after the other within a second, then nothing until the next."""

Point = tuple[float, float]


def is_gap(times: Sequence[float], at: int) -> bool:
    """Whether data is missing between the points `at - 1` and `at`.

    What is usual is asked on both sides: at an edge of thinning they differ.
    """
    step = times[at] - times[at - 1]
    if step <= LEAST_GAP_S:
        return False
    if at > 2 and step <= GAP_FACTOR * min(
        times[at - 1] - times[at - 2], times[at - 2] - times[at - 3]
    ):
        return False  # as those before it: needs no closer look
    before = times[max(0, at - 1 - AROUND) : at]
    after = times[at : at + 1 + AROUND]
    usual = max(_usual(before), _usual(after))
    return step > max(LEAST_GAP_S, GAP_FACTOR * usual) if usual > 0 else True


def _usual(times: Sequence[float]) -> float:
    steps = sorted(b - a for a, b in pairwise(times))
    return steps[int(USUAL * (len(steps) - 1))] if steps else 0.0


def segments(
    times: Sequence[float], values: Sequence[float], breaks: Sequence[float] = ()
) -> Iterator[list[Point]]:
    """The finite stretches of a curve: split at gaps, at what is not finite, and at `breaks`."""
    part: list[Point] = []
    for at, (at_s, value) in enumerate(zip(times, values, strict=True)):
        torn = at > 0 and (is_gap(times, at) or _crosses(times[at - 1], at_s, breaks))
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
    for at, value in enumerate(values):
        if not math.isfinite(value):
            continue
        alone = at == 0 or is_gap(times, at)
        if not alone:
            weight = times[at] - times[at - 1]
        elif at + 1 < len(times) and not is_gap(times, at + 1):
            weight = times[at + 1] - times[at]
        else:
            weight = 1.0
        found.append((value, max(weight, 1e-9)))
    return found


def quantile(weights: Sequence[Point], q: float) -> float | None:
    """The value below which the part `q` (0 to 1) of the weight lies; None without any."""
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
