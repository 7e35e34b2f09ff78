"""A complete chart as a grid of styled characters. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct, field

from cockpit.plot.buckets import INFINITE, Points
from cockpit.tui.terminal.cells import fit, width_of
from cockpit.tui.terminal.symbols import Symbols
from cockpit.tui.widgets.chart import marks as marking
from cockpit.tui.widgets.chart import surround
from cockpit.tui.widgets.chart.axis import Axis, extent, labels_of, y_axis, y_axis_in_powers
from cockpit.tui.widgets.chart.canvas import Canvas, pixels_wide
from cockpit.tui.widgets.chart.grid import Grid
from cockpit.tui.widgets.chart.marks import Mark, Stretch
from cockpit.tui.widgets.chart.plot import Trace, trace
from cockpit.tui.widgets.chart.surround import Lines
from training.telemetry.metric_table import Unit

LEAST_FOR_Y_LABELS = 24
LEAST_FOR_TIME_AXIS = 5
LEAST_FOR_LEGEND = 4
LEAST_FOR_ODD_ROW = 5
DECADES = 12.0
"""The maximum of decades on a logarithmic axis: a single 1e-30 would compress all others."""


class Curve(Struct, frozen=True):
    """Points by rising place on the axis, such as Unix seconds. The arrays are read, not copied."""

    label: str
    times: Sequence[float]
    values: Sequence[float]
    color: str = "curve-1"
    """A style as in `Palette.style`."""
    points: Points | None = None
    """Of these arrays, folded before; without, they are folded at each drawing."""
    raw: Points | None = None
    """The unsmoothed series of this curve, drawn dim behind it."""
    band: tuple[Points, Points] | None = None
    """The lower and the upper edge of a range: filled thinly behind the curve."""
    breaks: Sequence[float] = ()
    """Positions at which the line is interrupted."""


class ChartOptions(Struct, frozen=True):
    """How a chart is drawn, independent of its data."""

    title: str = ""
    unit: Unit = ""
    window_s: float | None = None
    """The length of the visible range, in the axis's unit. None: all of it."""
    end: float | None = None
    """The end of the visible range; None: it follows new data."""
    begin: float | None = None
    """The beginning of the axis; None: the first point."""
    axis: Axis = Axis.AGO
    origin: float = 0.0
    """The start of the run, for `Axis.SINCE`."""
    low: float | None = None
    high: float | None = None
    """Fixed ends of the value axis."""
    log: bool = False
    cursor: float | None = None
    """A place whose values are shown instead of the newest."""
    left: int = 0
    """Cells that are left of the plot at least, so that charts above each other are in line."""
    selected: bool = False
    empty: str = "No data yet"


class Picture(Struct, frozen=True):
    """The drawn grid, and the range of the axis."""

    grid: Grid
    stretch: Stretch | None = None
    """None without any point."""


class _Drawing(Struct):
    """One picture in the making."""

    grid: Grid
    options: ChartOptions
    curves: Sequence[Curve]
    marks: Sequence[Mark]
    now: float
    symbols: Symbols
    lines: Lines
    points: list[Points] = field(default_factory=list)

    def whole(self) -> Picture:
        grid, options, lines = self.grid, self.options, self.lines
        legend = grid.height >= LEAST_FOR_LEGEND
        legend = legend and bool(options.title or any(curve.label for curve in self.curves))
        floor = grid.height >= LEAST_FOR_TIME_AXIS
        top_row = int(legend)
        rows = grid.height - top_row - int(floor)
        # The labels' width depends on the values in the window, whose end depends on that width by
        # a pixel: this is accurate enough.
        start, end = self._extent(pixels_wide(grid.width, self.symbols))
        bottom, top, labels, log = self._values(start, end, rows)
        left = 0
        if grid.width >= LEAST_FOR_Y_LABELS and rows > 1:
            left = max((width_of(text) for _, text in labels), default=0) + 1
            left = max(left, self.options.left)
            left = left if left <= grid.width // 2 else 0
        cells = grid.width - left
        pixels = pixels_wide(cells, self.symbols)
        stretch = Stretch(left, cells, *self._extent(pixels))
        odd: list[Trace] = []
        canvas = self._traced(stretch, rows, pixels, bottom, top, log, odd)
        plot_rows = canvas.height

        if legend:
            entries = [
                (curve.label, curve.color, self._value(number, stretch))
                for number, curve in enumerate(self.curves)
            ]
            after = surround.title(grid, lines, options.title, selected=options.selected)
            surround.legend(grid, lines, after, entries, options.unit)
        if left:
            surround.values(grid, lines, left, top_row, (plot_rows, rows), labels, (bottom, top))
        if floor:
            labels_below = labels_of(
                options.axis, stretch.start, stretch.end, self.now, options.origin, cells
            )
            surround.floor(grid, lines, stretch, labels_below)
        shown = marking.columns(self.marks, stretch)
        marking.lines(grid, shown, top_row, plot_rows, lines.mark)
        if floor:
            marking.ticks(grid, self.marks, stretch, lines.below, lines.floor)
        at = None if options.cursor is None else stretch.cell(options.cursor)
        if at is not None:
            for y in range(top_row, top_row + rows):
                grid.put(at, y, lines.cursor, "accent")
        for y in range(plot_rows):
            characters, styles = grid.characters[top_row + y], grid.styles[top_row + y]
            for x, character in canvas.shaded(y):
                if left + x != at and characters[left + x] == " ":
                    characters[left + x], styles[left + x] = character, "dim muted"
            for x, character, owner in canvas.drawn(y):
                characters[left + x] = character
                color = self.curves[owner // 2].color
                styles[left + x] = f"dim {color}" if owner % 2 else color
        marking.flags(grid, shown, top_row, canvas, stretch)
        self._odd(odd, stretch, top_row + rows - 1, pixels)
        if at is not None:
            self._dots(at, stretch, top_row, canvas, (bottom, top), log)
        return Picture(grid, stretch)

    def _extent(self, pixels: int) -> tuple[float, float]:
        if self.options.end is not None and self.options.window_s:
            return self.options.end - self.options.window_s, self.options.end
        starts = [curve.times[0] for curve in self.curves]
        if self.options.begin is not None:
            starts = [self.options.begin]
        return extent(starts, self.now, self.options.window_s, pixels)

    def _values(
        self, start: float, end: float, rows: int
    ) -> tuple[float, float, list[tuple[float, str]], bool]:
        """Ends and labels of the value axis, and whether it is logarithmic after all."""
        options = self.options
        read = list(self.points)
        read += [curve.raw for curve in self.curves if curve.raw is not None]
        read += [edge for curve in self.curves if curve.band is not None for edge in curve.band]
        found = [both for points in read if (both := points.bounds(start, end)) is not None]
        least = min((a for a, _ in found), default=0.0)
        greatest = max((b for _, b in found), default=1.0)
        if options.log and greatest > 0:
            if least <= 0:
                least = min((a for a, _ in found if a > 0), default=greatest * 1e-3)
            least = max(least, greatest * 10.0**-DECADES)
            return *y_axis_in_powers(least, greatest, rows, options.unit), True
        low = options.low if options.low is not None else least
        high = options.high if options.high is not None else greatest
        bottom, top, labels = y_axis(min(low, high), max(low, high), rows, options.unit)
        bottom = bottom if options.low is None else options.low
        top = top if options.high is None else options.high
        return bottom, top, labels, False

    def _traced(
        self,
        stretch: Stretch,
        rows: int,
        pixels: int,
        bottom: float,
        top: float,
        log: bool,
        odd: list[Trace],
    ) -> Canvas:
        """The curves on a canvas: curve n has the number 2n, and its unsmoothed series 2n + 1.

        `odd` collects series with points that are not finite: these are drawn in a separate last
        row, and the canvas has one row less.
        """

        def traced(points: Points, curve: Curve) -> Trace:
            one = trace(points, stretch.start, stretch.end, pixels, curve.breaks)
            if any(one.odd):
                odd.append(one)
            return one.in_powers() if log else one

        drawn: list[tuple[int, Trace]] = []
        bands: list[tuple[Trace, Trace]] = []
        for number, curve in enumerate(self.curves):
            drawn.append((2 * number, traced(self.points[number], curve)))
            if curve.raw is not None:
                drawn.append((2 * number + 1, traced(curve.raw, curve)))
            if curve.band is not None:
                lower, upper = curve.band
                bands.append((traced(lower, curve), traced(upper, curve)))
        canvas = Canvas(stretch.cells, rows - bool(odd and rows >= LEAST_FOR_ODD_ROW), self.symbols)
        for below, above in bands:
            canvas.shade(below.low, above.high, bottom, top)
        for owner, one in sorted(drawn, key=lambda item: (item[0] % 2, item[0]), reverse=True):
            canvas.draw(one, bottom, top, owner)
        return canvas

    def _value(self, number: int, stretch: Stretch) -> float | None:
        """The value of a curve in the legend: at the cursor, else its newest."""
        if self.options.cursor is None:
            return self.curves[number].values[-1]
        return self.points[number].at(self.options.cursor, stretch.cell_size)

    def _odd(self, odd: Sequence[Trace], stretch: Stretch, y: int, pixels: int) -> None:
        """Mark values that are not numbers, in the last row of the plot."""
        for one in odd:
            for pixel, flag in enumerate(one.odd):
                if flag:
                    x = stretch.left + pixel * stretch.cells // pixels
                    character = self.lines.infinite if flag == INFINITE else self.lines.nan
                    if self.grid.characters[y][x] != self.lines.nan:
                        self.grid.put(x, y, character, "bold bad")

    def _dots(
        self,
        at: int,
        stretch: Stretch,
        top_row: int,
        canvas: Canvas,
        ends: tuple[float, float],
        log: bool,
    ) -> None:
        """Each curve's value on the cursor's line."""
        for number in reversed(range(len(self.curves))):
            value = self._value(number, stretch)
            if value is not None and math.isfinite(value):
                if log:
                    value = math.log10(value) if value > 0 else ends[0]
                y = top_row + canvas.row_of(value, *ends)
                self.grid.put(at, y, self.lines.dot, f"bold {self.curves[number].color}")


def compose(
    width: int,
    height: int,
    curves: Sequence[Curve],
    marks: Sequence[Mark],
    options: ChartOptions,
    now: float,
    symbols: Symbols,
) -> Picture:
    """Draw the chart in `width` x `height` cells. `now`: the newest place of the axis."""
    grid = Grid(max(0, width), max(0, height))
    if width < 1 or height < 1:
        return Picture(grid)
    lines = surround.lines_of(symbols)
    curves = [curve for curve in curves if len(curve.times)]
    if not curves:
        if height > 1:
            surround.title(grid, lines, options.title, selected=options.selected)
        text = fit(options.empty, width) if width_of(options.empty) > width else options.empty
        grid.put((width - width_of(text)) // 2, height // 2, text, "muted")
        return Picture(grid)
    points = [curve.points or Points(curve) for curve in curves]
    return _Drawing(grid, options, curves, marks, now, symbols, lines, points).whole()
