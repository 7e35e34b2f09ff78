"""Series of the store as a chart can draw them, made once and then only grown."""

from __future__ import annotations

from bisect import bisect_left

from msgspec import Struct

from cockpit.plot.buckets import Points
from cockpit.plot.points import LEAST_GAP_S
from cockpit.store.run import RunView
from cockpit.store.series import Series
from cockpit.tui.widgets.chart.derived_series import Projected, Smoothed

KEPT = 400
"""More than the charts of one screen; the least recently drawn is dropped first."""


class Placing(Struct, frozen=True):
    """The place of a run's points on the axis of the charts."""

    progress: Series | None = None
    """The run's steps, which place its points. None: by time."""
    shift_s: float = 0.0
    """How much later than they were, so that two runs begin together."""


class Track(Struct):
    """One series, placed and smoothed."""

    series: Series
    placing: Placing
    points: Points
    raw: Points | None = None
    """The unsmoothed series."""


class CurveCache:
    """All that a view draws."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int, float, float], Track] = {}

    def track(self, series: Series, placing: Placing, weight: float = 0.0) -> Track:
        """Return the current series; `weight`: of the smoothing, 0 for none."""
        key = (id(series), id(placing.progress), placing.shift_s, weight)
        # Both are kept alive with it, so that their ids are not reused.
        track = self._kept.pop(key, None)
        if track is None:
            track = _made(series, placing, weight)
            while len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
        self._kept[key] = track
        track.points.sync()
        if track.raw is not None:
            track.raw.sync()
        return track

    def forget(self) -> None:
        self._kept.clear()


def _made(series: Series, placing: Placing, weight: float) -> Track:
    least_gap = LEAST_GAP_S if placing.progress is None else 0.0
    source: Series | Projected = series
    if placing.progress is not None or placing.shift_s:
        source = Projected(series, shift_s=placing.shift_s, progress=placing.progress)
    raw = Points(source, least_gap)
    if not weight:
        return Track(series, placing, raw)
    return Track(series, placing, Points(Smoothed(source, weight), least_gap), raw)


def step_at(run: RunView, at_s: float) -> float | None:
    """How far the run was; None before its first sample."""
    times, steps = run.progress.times, run.progress.values
    after = bisect_left(times, at_s)
    if after == len(times):
        return steps[-1] if times else None
    if times[after] == at_s:
        return steps[after]
    if after == 0:
        return None
    share = (at_s - times[after - 1]) / (times[after] - times[after - 1])
    return steps[after - 1] + share * max(0.0, steps[after] - steps[after - 1])


def time_at(run: RunView, step: float) -> float | None:
    """When the run last reached that step; None if it has not."""
    times, steps = run.progress.times, run.progress.values
    for at in range(len(steps) - 1, -1, -1):
        if steps[at] < step:
            if at + 1 == len(steps):
                return None
            span = steps[at + 1] - steps[at]
            share = (step - steps[at]) / span if span > 0 else 1.0
            return times[at] + share * (times[at + 1] - times[at])
    return times[0] if times else None


def begun_s(run: RunView) -> float | None:
    """The time of its first sample, to align runs; waiting times before it do not count."""
    if len(run.progress):
        return run.progress.times[0]
    firsts = [run.curves[name].times[0] for name in run.curves if len(run.curves[name])]
    return min(firsts, default=run.started_s or None)
