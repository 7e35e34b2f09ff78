"""A chart as inline SVG: curves with gaps, the band of the ranks, NaN, and what happened when.

Colours are CSS variables of the page, so that a chart is dark where the page is. A curve is
identified by its dashes and its label too, a mark by its form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from cockpit.plot import points
from cockpit.report import values
from cockpit.report.charts import axis, svg
from cockpit.report.charts.axis import Axis
from cockpit.report.document import Band, Chart, Kind, Line, Mark, MarkKind

WIDTH, HEIGHT = 560.0, 210.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 10.0, 18.0, 24.0
BUCKETS = 200
"""Slices of the time axis that keep their extremes: finer than the eye at this width."""
APART_PX = 4
"""Of marks of a kind that are closer together than this, one is drawn."""
FORMS = {
    MarkKind.ATTEMPT: "dashed",
    MarkKind.DRILL: "full",
    MarkKind.CHECKPOINT: "",
    MarkKind.ALERT: "full",
    MarkKind.USER: "dotted",
}
"""How their strokes are drawn: classes of the stylesheet."""
MARKS_LISTED = 30
"""Of a kind with more marks than this, their number is shown in place of what each was."""
CURVES = 6
"""Colours that there are."""


def chart_svg(chart: Chart, marks: Sequence[Mark] = ()) -> str:
    """The picture. `marks` outside of the chart's time are left out."""
    return _Drawing(chart, marks).svg()


def summary(chart: Chart) -> str:
    """The chart as text, for readers who cannot see it."""
    reported = []
    for line in chart.lines:
        finite = [value for value in line.values if math.isfinite(value)]
        odd = len(line.values) - len(finite)
        if finite:
            first, last = finite[0], finite[-1]
            text = (
                f"{line.label}: from {values.shown(first, chart.kind)}"
                f" to {values.shown(last, chart.kind)},"
                f" lowest {values.shown(min(finite), chart.kind)},"
                f" highest {values.shown(max(finite), chart.kind)}"
            )
        else:
            text = f"{line.label}: no finite value"
        reported.append(text + (f", {odd:,} not finite" if odd else ""))
    return "; ".join(reported) + "."


class _Drawing:
    def __init__(self, chart: Chart, marks: Sequence[Mark]) -> None:
        self.chart = chart
        self.time = axis.time_axis(0.0, chart.end_s - chart.begin_s)
        self.value = _value_axis(chart)
        self.marks = [mark for mark in marks if chart.begin_s <= mark.at_s <= chart.end_s]

    def x(self, at_s: float) -> float:
        return LEFT + self.time.part(at_s - self.chart.begin_s) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - self.value.part(value) * (HEIGHT - TOP - BOTTOM)

    def svg(self) -> str:
        chart = self.chart
        parts = [*self._grid()]
        if chart.band is not None:
            parts += self._band(chart.band)
        parts += self._marks()
        for index, line in enumerate(chart.lines):
            parts += self._line(index % CURVES, line)
        return svg.picture(WIDTH, HEIGHT, chart.title, summary(chart), parts)

    def _grid(self) -> list[str]:
        left, right, bottom = LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM
        parts = []
        for value, label in self.value.ticks:
            y = self.y(value)
            parts.append(svg.line(left, y, right, y, "grid"))
            parts.append(svg.text(left - 6, y + 4, label, anchor="end"))
        for at, label in self.time.ticks:
            x = self.x(self.chart.begin_s + at)
            parts.append(svg.line(x, bottom, x, bottom + 4, "tick"))
            half = len(label) * svg.CHARACTER_PX / 2
            ends = x + half > WIDTH
            parts.append(
                svg.text(
                    WIDTH if ends else x, bottom + 16, label, anchor="end" if ends else "middle"
                )
            )
        return parts

    def _band(self, band: Band) -> list[str]:
        highs = dict(zip(band.times, band.high, strict=True))
        areas = []
        period = [(self.chart.begin_s, self.chart.end_s)]
        inside = points.between(band.times, band.low, period)
        for part in points.segments(*inside, self.chart.breaks):
            reported = [(at, low, highs[at]) for at, low in part if math.isfinite(highs[at])]
            kept = _envelope(reported, self.chart)
            if len(kept) > 1:
                tops = self._placed([(at, high) for at, _, high in kept])
                areas.append((tops, self._placed([(at, low) for at, low, _ in kept])))
        return [svg.areas(areas, "band")]

    def _line(self, index: int, line: Line) -> list[str]:
        chart = self.chart
        drawn: list[list[points.Point]] = []
        dots: list[list[points.Point]] = []
        inside = points.between(line.times, line.values, [(chart.begin_s, chart.end_s)])
        for part in points.segments(*inside, chart.breaks):
            kept = points.thinned(part, chart.begin_s, chart.end_s, BUCKETS)
            placed = self._placed(kept)
            (drawn if len(placed) > 1 else dots).append(placed)
        parts = [svg.path(drawn, f"c c{index}")]
        for ((x, y),) in dots[:BUCKETS]:
            parts.append(
                f'<circle class="p{index}" cx="{svg.number(x)}" cy="{svg.number(y)}" r="2"/>'
            )
        odd = points.not_finite(*inside)
        return parts + self._not_finite(line.label, odd)

    def _not_finite(self, label: str, odd: Sequence[float]) -> list[str]:
        """A cross at the top at each moment without a number, one a pixel column."""
        columns = {round(self.x(at_s) / 4): at_s for at_s in reversed(odd)}
        y = TOP + 6
        crosses = [
            [[(x - 3, y - 3), (x + 3, y + 3)], [(x - 3, y + 3), (x + 3, y - 3)]]
            for x in (self.x(at_s) for at_s in columns.values())
        ]
        if not crosses:
            return []
        first = values.since(min(odd) - self.chart.begin_s)
        title = (
            f"{label}: {len(odd):,} values are not finite (NaN or infinite), the first at {first}"
        )
        return [svg.group("nan", title, svg.path([s for cross in crosses for s in cross], "odd"))]

    def _marks(self) -> list[str]:
        """One of a kind in a few pixels; of a kind that there is much of, all in one piece."""
        found: dict[MarkKind, dict[int, Mark]] = {}
        for mark in self.marks:
            place = round(self.x(mark.at_s) / APART_PX)
            found.setdefault(mark.kind, {}).setdefault(place, mark)
        parts = []
        for kind, marks in found.items():
            forms = [(_form(kind, self.x(m.at_s), TOP, HEIGHT - BOTTOM), m) for m in marks.values()]
            css = f"s {FORMS[kind]}".rstrip()
            if len(forms) > MARKS_LISTED or kind is MarkKind.CHECKPOINT:
                count = sum(mark.kind is kind for mark in self.marks)
                drawn = svg.path([stroke for form, _ in forms for stroke in form], css)
                parts.append(
                    svg.group(f"m {kind.value}", f"{kind.value}: {count:,} of them", drawn)
                )
                continue
            for form, mark in forms:
                when = values.since(mark.at_s - self.chart.begin_s)
                title = f"{kind.value} at {when}: {mark.label}"
                parts.append(svg.group(f"m {kind.value}", title, svg.path(form, css)))
        return parts

    def _placed(self, part: Sequence[points.Point]) -> list[tuple[float, float]]:
        return [(self.x(at_s), self.y(value)) for at_s, value in part]


def _form(kind: MarkKind, x: float, top: float, bottom: float) -> list[list[points.Point]]:
    """The SVG shape of a mark."""
    match kind:
        case MarkKind.CHECKPOINT:
            return [[(x, bottom - 5), (x, bottom)]]
        case MarkKind.DRILL:
            head = [(x - 4, top - 10), (x + 4, top - 10), (x, top - 3), (x - 4, top - 10)]
            return [[(x, top - 3), (x, bottom)], head]
        case MarkKind.ALERT:
            return [[(x - 4, top - 3), (x + 4, top - 3), (x, top - 11), (x - 4, top - 3)]]
        case _:
            return [[(x, top), (x, bottom)]]


def _envelope(
    part: Sequence[tuple[float, float, float]], chart: Chart
) -> list[tuple[float, float, float]]:
    """(time, low, high) thinned to one a slice with all that the slice held; ends where it ends."""
    width = (chart.end_s - chart.begin_s) / BUCKETS
    if width <= 0 or len(part) < 3:
        return list(part)
    slices: dict[int, tuple[float, float, float]] = {}
    for at_s, low, high in part:
        bucket = math.floor((at_s - chart.begin_s) / width)
        begin_s, least, most = slices.get(bucket, (at_s, low, high))
        slices[bucket] = (begin_s, min(least, low), max(most, high))
    kept = list(slices.values())
    return [*kept, (part[-1][0], *kept[-1][1:])]


def _value_axis(chart: Chart) -> Axis:
    """Round all of the curves and the band."""
    found = [value for line in chart.lines for value in line.values if math.isfinite(value)]
    if chart.band is not None:
        found += [v for v in (*chart.band.low, *chart.band.high) if math.isfinite(v)]
    if not found:
        return axis.value_axis(0.0, 1.0, chart.kind)
    low, high = min(found), max(found)
    return axis.value_axis(low, high, chart.kind, log=is_log(chart, found))


def is_log(chart: Chart, found: Sequence[float] | None = None) -> bool:
    """Whether most of the values are so near the bottom that only a logarithmic axis shows them.

    Of plain numbers alone (a loss, a gradient norm): rates and bytes are compared by length.
    """
    if chart.kind is not Kind.NUMBER:
        return False
    if found is None:
        found = [value for line in chart.lines for value in line.values if math.isfinite(value)]
    if not found or min(found) <= 0 or max(found) / min(found) < axis.LOG_FROM:
        return False
    return median(found) - min(found) < axis.LOG_BELOW * (max(found) - min(found))
