"""A curve as one line of text, for Markdown: it goes wherever text goes, with nothing beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cockpit.report.charts.points import is_gap
from cockpit.report.document import Chart, Line

BARS = "▁▂▃▄▅▆▇█"
NOT_FINITE = "×"
CELLS = 60


def spark(line: Line, chart: Chart, *, log: bool = False, cells: int = CELLS) -> str:
    """The mean of each slice of time as a bar; a blank where nothing was told, × where not finite.

    A slice without a point between two that are no gap apart takes the value before it.
    """
    low, high = bounds(line)
    means = _means(line, chart, cells)
    drawn = []
    for value in means:
        if value is None:
            drawn.append(" ")
        elif not math.isfinite(value):
            drawn.append(NOT_FINITE)
        else:
            drawn.append(BARS[_level(value, low, high, log=log)])
    return "".join(drawn)


def bounds(line: Line) -> tuple[float, float]:
    """Lowest and highest finite value; NaN when there is none."""
    finite = [value for value in line.values if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else (math.nan, math.nan)


def _level(value: float, low: float, high: float, *, log: bool) -> int:
    if not high > low:
        return len(BARS) // 2
    if log:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return min(len(BARS) - 1, int((value - low) / (high - low) * len(BARS)))


def _means(line: Line, chart: Chart, cells: int) -> list[float | None]:
    means: list[float | None] = [None] * cells
    width = (chart.end_s - chart.begin_s) / cells
    if width <= 0:
        return means
    sums: list[list[float]] = [[] for _ in range(cells)]
    for at_s, value in zip(line.times, line.values, strict=True):
        cell = min(cells - 1, math.floor((at_s - chart.begin_s) / width))
        if cell >= 0:
            sums[cell].append(value)
    for cell, inside in enumerate(sums):
        if inside:
            means[cell] = math.fsum(inside) / len(inside) if _all_finite(inside) else math.nan
    _fill(means, line, chart, width)
    return means


def _fill(means: list[float | None], line: Line, chart: Chart, width: float) -> None:
    for at in range(1, len(line.times)):
        if line.times[at] - line.times[at - 1] <= width or is_gap(line.times, at):
            continue
        first = math.floor((line.times[at - 1] - chart.begin_s) / width)
        last = math.floor((line.times[at] - chart.begin_s) / width)
        for cell in range(max(0, first + 1), min(len(means), last)):
            if means[cell] is None:
                means[cell] = line.values[at - 1]


def _all_finite(values: Sequence[float]) -> bool:
    return all(map(math.isfinite, values))
