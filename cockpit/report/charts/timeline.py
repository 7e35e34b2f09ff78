"""Inline SVG: phases as bars over time, and a stacked bar of shares."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cockpit.format import duration, plural
from cockpit.plot.points import gaps
from cockpit.report import values
from cockpit.report.charts import axis, svg
from cockpit.report.document import Chart, Line, Mark, MarkKind, Shares, Timeline

WIDTH = 1140.0
LEFT, RIGHT, TOP, BOTTOM = 90.0, 14.0, 16.0, 24.0
LANE, BAR = 24.0, 16.0
LEAST_PX = 0.6
FILLS = 8


def timeline_svg(timeline: Timeline, marks: Sequence[Mark] = ()) -> str:
    lanes = list(dict.fromkeys(span.lane for span in timeline.spans))
    height = TOP + LANE * len(lanes) + BOTTOM
    time = axis.time_axis(0.0, timeline.end_s - timeline.begin_s, parts=9)

    def x(at_s: float) -> float:
        return LEFT + time.part(at_s - timeline.begin_s) * (WIDTH - LEFT - RIGHT)

    parts = []
    bottom = height - BOTTOM
    for since_s, label in time.ticks:
        place = x(timeline.begin_s + since_s)
        parts.append(svg.line(place, TOP, place, bottom + 4, "grid"))
        anchor = "end" if place > WIDTH - 30 else "middle"
        parts.append(svg.text(min(place, WIDTH), bottom + 16, label, anchor=anchor))
    for row, lane in enumerate(lanes):
        y = TOP + row * LANE
        parts.append(svg.text(LEFT - 8, y + LANE / 2 + 4, lane, anchor="end", limit=14))
        for span in timeline.spans:
            if span.lane == lane:
                begin, end = x(span.begin_s), x(span.end_s)
                width = max(LEAST_PX, end - begin)
                took = duration(span.end_s - span.begin_s)
                at = values.since(span.begin_s - timeline.begin_s)
                css = f"f{timeline.order.index(span.name) % FILLS}"
                title = f"{lane}: {span.name}, {took}, from {at}"
                parts.append(svg.box(begin, y + (LANE - BAR) / 2, width, BAR, css, title))
                text = f"{span.name} {took}"
                if len(text) * svg.CHARACTER_PX + 10 < width:
                    parts.append(svg.text(begin + 5, y + LANE / 2 + 4, text, css="in"))
    for mark in marks:
        if mark.kind is MarkKind.DRILL and timeline.begin_s <= mark.at_s <= timeline.end_s:
            place = x(mark.at_s)
            drawn = svg.line(place, TOP - 4, place, bottom, "s")
            drawn += svg.path(
                [[(place - 4, 3), (place + 4, 3), (place, 11), (place - 4, 3)]], "s full"
            )
            parts.append(svg.group("m drill", f"drill: {mark.label}", drawn))
    took = duration(timeline.end_s - timeline.begin_s)
    seen = f"{plural(len(lanes), timeline.lane)} over {took}."
    return svg.picture(WIDTH, height, f"Phases by {timeline.lane}", seen, parts)


def shares_svg(shares: Shares) -> str:
    whole = sum(max(0.0, share.percent) for share in shares.shares) or 1.0
    parts, at = [], 0.0
    for index, share in enumerate(shares.shares):
        width = WIDTH * max(0.0, share.percent) / whole
        message = f"{share.name}: {values.number(share.percent, 3)} %"
        parts.append(svg.box(at, 0, width, 26, f"f{index % FILLS}", message))
        short = f"{share.percent:.0f} %"
        for fits in (f"{share.name} {short}", short):
            if len(fits) * svg.CHARACTER_PX + 12 < width:
                parts.append(svg.text(at + 6, 17, fits, css="in"))
                break
        at += width
    text = ", ".join(f"{share.name} {share.percent:.1f} %" for share in shares.shares)
    return svg.picture(WIDTH, 26, shares.title, text, parts)


BARS = "▁▂▃▄▅▆▇█"
NOT_FINITE = "×"
CELLS = 60


def spark(line: Line, chart: Chart, *, log: bool = False, cells: int = CELLS) -> str:
    """The mean of each slice of time as a bar; a blank where nothing was reported, × where not
    finite.

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
    """Return the minimum and maximum finite value; NaN without any."""
    finite = [value for value in line.values if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else (math.nan, math.nan)


def _level(value: float, low: float, high: float, *, log: bool) -> int:
    if log and high > low:
        value, low, high = math.log(value), math.log(low), math.log(high)
    # Of halves: the difference of two large values may be infinite.
    half_span = high / 2 - low / 2
    if not half_span > 0:
        return len(BARS) // 2
    return min(len(BARS) - 1, int((value / 2 - low / 2) / half_span * len(BARS)))


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
            means[cell] = _mean(inside) if _all_finite(inside) else math.nan
    _fill(means, line, chart, width)
    return means


def _fill(means: list[float | None], line: Line, chart: Chart, width: float) -> None:
    missing = set(gaps(line.times))
    for at in range(1, len(line.times)):
        if line.times[at] - line.times[at - 1] <= width or at in missing:
            continue
        first = math.floor((line.times[at - 1] - chart.begin_s) / width)
        last = math.floor((line.times[at] - chart.begin_s) / width)
        for cell in range(max(0, first + 1), min(len(means), last)):
            if means[cell] is None:
                means[cell] = line.values[at - 1]


def _all_finite(values: Sequence[float]) -> bool:
    return all(map(math.isfinite, values))


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)
