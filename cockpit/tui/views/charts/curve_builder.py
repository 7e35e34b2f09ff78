"""Build the curves of each chart: a run, its ranks, and the runs of a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from msgspec import Struct, field

from cockpit.store.run import RankView, RunView
from cockpit.store.selectors import ranks_in_order
from cockpit.store.series import Curves, Series
from cockpit.tui.views.charts.available_charts import Plot
from cockpit.tui.views.charts.curve_cache import CurveCache, Placing, begun_s, step_at
from cockpit.tui.views.charts.viewport import Reach, Viewport
from cockpit.tui.widgets.chart.marks import Mark
from cockpit.tui.widgets.chart.picture import Curve
from training.telemetry.metric_table import CURVES

COLOURS = 8
"""How many curves a theme has colors for; of more ranks, this number is drawn."""
CHOSEN_FOR_S = 10
"""For this time the same ranks of a large world are drawn: outliers of one second mean little."""
NEWEST = 8
"""Points over which a rank is judged to be high or low."""


class Compared(Struct, frozen=True):
    """Another run, live in the store or from a recording."""

    name: str
    run: RunView


class CurveBuilder(Struct):
    """Makes curves, and remembers which ranks it chose."""

    cache: CurveCache = field(default_factory=CurveCache)
    _chosen: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)

    def forget(self) -> None:
        self.cache.forget()
        self._chosen.clear()

    def curves(
        self, plot: Plot, run: RunView, compared: Sequence[Compared], viewport: Viewport
    ) -> list[Curve]:
        """The run, then the others, aligned by their start or by step."""
        placing = placing_of(run, run, viewport)
        breaks = breaks_of(run, viewport)
        if plot.parts:
            parts = [part for part in plot.parts if part[0] in run.curves]
            return [
                self._curve(run.curves[name], label, number, placing, viewport, breaks)
                for number, (name, label) in enumerate(parts)
            ]
        found: list[Curve] = []
        series = _series(plot, run)
        if len(series):
            label = (run.name or run.id) if compared else ""
            band = None if plot.reported else self._band(run.bands, plot.curve)
            found.append(self._curve(series, label, 0, placing, viewport, breaks, band))
        for number, other in enumerate(compared, start=1):
            series = _series(plot, other.run)
            if len(series):
                at = placing_of(other.run, run, viewport)
                breaks = breaks_of(other.run, viewport, at.shift_s)
                found.append(self._curve(series, other.name, number, at, viewport, breaks))
        return [curve for curve in found if len(curve.times)]

    def of_ranks(self, plot: Plot, run: RunView, viewport: Viewport, now_s: float) -> list[Curve]:
        """One curve a rank; of a large world the highest, the lowest, and those in the middle."""
        placing = placing_of(run, run, viewport)
        breaks = breaks_of(run, viewport)
        ranks = [rank for rank in ranks_in_order(run) if plot.curve in rank.curves]
        if len(ranks) > COLOURS:
            numbers = self._ranks(plot, ranks, now_s)
            ranks = [rank for rank in ranks if rank.rank in numbers]
        found = [
            self._curve(
                rank.curves[plot.curve], f"rank {rank.rank}", number, placing, viewport, breaks
            )
            for number, rank in enumerate(ranks)
        ]
        return [curve for curve in found if len(curve.times)]

    def _ranks(self, plot: Plot, ranks: Sequence[RankView], now_s: float) -> tuple[int, ...]:
        moment = int(now_s // CHOSEN_FOR_S)
        cached = self._chosen.get(plot.id)
        if cached is None or cached[0] != moment:
            cached = moment, outliers(ranks, plot.curve, COLOURS)
            self._chosen[plot.id] = cached
        return cached[1]

    def _curve(
        self,
        series: Series,
        label: str,
        number: int,
        placing: Placing,
        viewport: Viewport,
        breaks: Sequence[float],
        band: tuple[Series, Series] | None = None,
    ) -> Curve:
        track = self.cache.track(series, placing, viewport.weight)
        edges = None
        if band is not None:
            low, high = (self.cache.track(edge, placing).points for edge in band)
            edges = low, high
        source = track.points.source
        color = f"curve-{number % COLOURS + 1}"
        return Curve(
            label, source.times, source.values, color, track.points, track.raw, edges, breaks
        )

    @staticmethod
    def _band(bands: Curves, name: str) -> tuple[Series, Series] | None:
        """Of the ranks; not shown with a sum over them."""
        low, high = bands[f"{name}.p10"], bands[f"{name}.p90"]
        metric = CURVES.get(name)
        drawn = len(low) and len(high) and metric is not None and not metric.total
        return (low, high) if drawn else None


def outliers(ranks: Sequence[RankView], name: str, count: int) -> tuple[int, ...]:
    """With this many ranks: the highest, as many of the lowest, the others around the median, by
    the mean of their newest points. A rank without a finite value counts as the highest.
    """
    judged = sorted((_newest(rank.curves[name]), rank.rank) for rank in ranks)
    ends = count * 3 // 8
    middle = count - 2 * ends
    first = (len(judged) - middle) // 2
    chosen = judged[:ends] + judged[first : first + middle] + judged[-ends:]
    return tuple(rank for _, rank in chosen)


def _newest(series: Series) -> float:
    finite = [value for value in series.values[-NEWEST:] if math.isfinite(value)]
    return fmean(finite) if finite else math.inf


def placing_of(run: RunView, first: RunView, viewport: Viewport) -> Placing:
    """The places of a run's points, such that it begins together with the first run."""
    if viewport.by_step:
        return Placing(progress=run.progress)
    if run is first:
        return Placing()
    return Placing(shift_s=(begun_s(first) or 0.0) - (begun_s(run) or 0.0))


def breaks_of(run: RunView, viewport: Viewport, shift_s: float = 0.0) -> list[float]:
    """Where attempts began. By step there is no gap: the next continues at the last step."""
    if viewport.by_step:
        return []
    started = (attempt.started_s for attempt in run.attempts.values())
    return sorted(at_s + shift_s for at_s in started if at_s is not None)


def reach_of(
    run: RunView, compared: Sequence[Compared], viewport: Viewport, end_s: float
) -> Reach | None:
    """All there is to see; None before the first sample of the run."""
    if viewport.by_step:
        steps = run.progress.values
        if not steps:
            return None
        newest = steps[-1]
        furthest = [c.run.progress.values[-1] for c in compared if len(c.run.progress)]
        return Reach(min(steps[0], newest), newest, max(newest, *furthest, newest))
    firsts = [
        curves[name].times[0]
        for curves in (run.curves, run.reported)
        for name in curves
        if len(curves[name])
    ]
    if not firsts:
        return None
    start = min(firsts)
    newest = max(end_s, start + 1.0)
    ends = [newest]
    for other in compared:
        shift_s = placing_of(other.run, run, viewport).shift_s
        ends += [
            other.run.curves[name].times[-1] + shift_s
            for name in other.run.curves
            if len(other.run.curves[name])
        ]
    return Reach(start, newest, max(ends))


def marks_on(marks: Sequence[Mark], run: RunView, viewport: Viewport) -> list[Mark]:
    """Marks at their place on the axis; by step, none from before the first."""
    if not viewport.by_step:
        return list(marks)
    placed = ((step_at(run, mark.at), mark) for mark in marks)
    return [Mark(step, mark.label, mark.kind) for step, mark in placed if step is not None]


def _series(plot: Plot, run: RunView) -> Series:
    return (run.reported if plot.reported else run.curves)[plot.curve]
