"""The pace of a run: before a fault, when it stopped, and when it was back.

Over the run's curves, a point a record (at most one a second of each rank):

    pace        the median of samples_per_s over the 30 s before the fault; for a run without
                samples, of 1 / step_time_s
    below       three records in a row under pace - max(5 % of it, 3 s), s: 1.4826 MAD of those 30 s
    back        the first record that has 95 % of the pace or more, as has the median of the 10 s
                from it on (and of 4 records at least), with no stall in them; with another number
                of ranks, of pace * ranks now / ranks before
    stall       no record for max(5 s, 5 times the usual interval)
    caught up   when the newest step of any rank was again the one before, between the two records
                around it as if all their steps took as long
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from cockpit.insight.metrics.robust_statistics import finite, median, spread, window
from cockpit.store.run import RunView
from cockpit.store.series import Series

BACK_PERCENT = 95.0
BASE_S = 30.0
WINDOW_S = 10.0
WINDOW_RECORDS = 4
BELOW_RECORDS = 3
BELOW_SIGMAS = 3.0
STALL_S = 5.0
STALL_INTERVALS = 5.0
CHECK_EVERY_S = 1_800.0
"""The search for a recovered throughput ends then."""
FIRST_CHECK_S = 120.0
"""Usually enough, since the UI computes it repeatedly."""


class Pace(Struct, frozen=True):
    """The usual pace. Rates are of `curve`, per second."""

    curve: str
    rate: float | None = None
    spread: float = 0.0
    interval_s: float = 1.0
    """Between two records."""
    step_s: float | None = None
    """Wall time per step, including all other work."""

    @property
    def stall_s(self) -> float:
        return max(STALL_S, STALL_INTERVALS * self.interval_s)

    @property
    def window_s(self) -> float:
        return max(WINDOW_S, WINDOW_RECORDS * self.interval_s)


def pace_before(run: RunView, at_s: float, samples_per_s: float | None = None) -> Pace:
    """Of the newest records before `at_s`; `samples_per_s` where it was read then."""
    curve = "samples_per_s" if "samples_per_s" in run.curves else "step_time_s"
    times, steps = _before(run.progress, at_s)
    interval = median(b - a for a, b in pairwise(times)) if len(times) > 2 else 1.0
    reported_s, reported = _before(run.curves[curve], at_s)
    rates = [rate for rate in _rates(curve, finite(reported)) if rate > 0]
    if len(reported_s) < BELOW_RECORDS or len(rates) < BELOW_RECORDS:
        return Pace(curve, samples_per_s, 0.0, interval, _step_s(times, steps))
    level = samples_per_s if curve == "samples_per_s" else None
    return Pace(curve, level or median(rates), spread(rates), interval, _step_s(times, steps))


def _before(series: Series, at_s: float) -> tuple[list[float], list[float]]:
    last = bisect_right(series.times, at_s)
    if not last:
        return [], []
    first = bisect_left(series.times, series.times[last - 1] - BASE_S, 0, last)
    return list(series.times[first:last]), list(series.values[first:last])


def _step_s(times: Sequence[float], steps: Sequence[float]) -> float | None:
    """Over the newest stretch in which no step was done again."""
    first = len(times) - 1
    while first > 0 and steps[first - 1] <= steps[first]:
        first -= 1
    done = steps[-1] - steps[first] if times else 0.0
    return (times[-1] - times[first]) / done if done > 0 else None


def _rates(curve: str, values: Sequence[float]) -> list[float]:
    if curve == "samples_per_s":
        return list(values)
    return [1.0 / value if value > 0 else 0.0 for value in values]


def records(run: RunView, pace: Pace, since_s: float, until_s: float) -> tuple[list[float], ...]:
    """Times and rates."""
    times, values = window(run.curves[pace.curve], since_s, until_s)
    return times, _rates(pace.curve, values)


def below_s(run: RunView, pace: Pace, since_s: float, until_s: float) -> float | None:
    """When the run became slower than it had been; None while it is not."""
    if pace.rate is None:
        return None
    least = pace.rate - max(pace.rate * (100.0 - BACK_PERCENT) / 100.0, BELOW_SIGMAS * pace.spread)
    times, rates = records(run, pace, since_s, min(until_s, since_s + 3 * FIRST_CHECK_S))
    for at in range(len(rates) - BELOW_RECORDS + 1):
        if max(rates[at : at + BELOW_RECORDS]) < least:
            return times[at]
    return None


def back_s(
    run: RunView, pace: Pace, since_s: float, until_s: float, scale: float = 1.0
) -> float | None:
    """When the run was as fast again, and stayed so for the length of the window."""
    if pace.rate is None:
        return None
    least = pace.rate * scale * BACK_PERCENT / 100.0
    for check_s in (FIRST_CHECK_S, CHECK_EVERY_S):
        found = _back_s(run, pace, since_s, min(until_s, since_s + check_s), least)
        if found is not None:
            return found
    return None


def _back_s(run: RunView, pace: Pace, since_s: float, until_s: float, least: float) -> float | None:
    times, rates = records(run, pace, since_s, until_s)
    for at, begin_s in enumerate(times):
        if rates[at] < least:
            continue
        end = bisect_right(times, begin_s + pace.window_s)
        if end == len(times) and times[-1] < begin_s + pace.window_s - pace.interval_s:
            return None  # the following records are not known yet
        inside = times[at:end]
        if (
            len(inside) >= BELOW_RECORDS
            and max(b - a for a, b in pairwise(inside)) <= pace.stall_s
            and median(rates[at:end]) >= least
        ):
            return begin_s
    return None


def stalls(
    times: Sequence[float], since_s: float, until_s: float, last_update_s: float, limit_s: float
) -> Iterator[tuple[float, float]]:
    """(last record, next one) around each; infinity for the one in progress at `last_update_s`."""
    first, last = max(0, bisect_left(times, since_s) - 1), bisect_right(times, until_s)
    recorded = times[first:last]
    for before, after in pairwise(recorded):
        if after - before > limit_s:
            yield before, after
    if len(recorded) and min(last_update_s, until_s) - recorded[-1] > limit_s:
        yield recorded[-1], float("inf")


def step_at(run: RunView, at_s: float) -> float | None:
    """The newest step at that time, between two records as if its steps took equally long."""
    times, values = run.progress.times, run.progress.values
    at = bisect_right(times, at_s)
    if at == 0:
        return None
    if at == len(times) or values[at] < values[at - 1]:
        return values[at - 1]
    share = (at_s - times[at - 1]) / (times[at] - times[at - 1])
    return values[at - 1] + share * (values[at] - values[at - 1])


def reached_s(
    run: RunView, step: float, first: tuple[float, float], until_s: float
) -> float | None:
    """When the run reached `step`, from `first` on: the time of its first new step, and that step.

    If the first new step is later than `step`: the time of that step.
    """
    before_s, before = first
    if before >= step:
        return before_s
    times, values = run.progress.times, run.progress.values
    for at in range(bisect_left(times, before_s), len(times)):
        at_s, value = times[at], values[at]
        if at_s > until_s:
            return None
        if value >= step:
            share = (step - before) / (value - before)
            return before_s + share * (at_s - before_s)
        if value >= before:
            before_s, before = at_s, value
    return None
