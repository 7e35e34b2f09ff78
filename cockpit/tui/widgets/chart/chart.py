"""A chart of curves over time that repaints only the cells that changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip

from cockpit.plot.buckets import Points
from cockpit.tui.terminal.symbols import Symbols, symbols
from cockpit.tui.widgets.chart.axis import Axis
from cockpit.tui.widgets.chart.grid import Grid
from cockpit.tui.widgets.chart.marks import Mark, MarkKind, Stretch
from cockpit.tui.widgets.chart.picture import ChartOptions, Curve, Picture, compose
from cockpit.tui.widgets.line_widget import LineWidget
from training.telemetry.metric_table import Unit

__all__ = ["ChartOptions", "Curve", "LineChart", "Mark", "MarkKind"]

NEAR_CELLS = 8
"""Changed cells of a row that are so near to each other are painted as one."""


class LineChart(LineWidget):
    """Curves over time, with marks. Time ends at `now_s`, or without it at the newest point."""

    DEFAULT_CSS = Path(__file__).with_suffix(".tcss").read_text(encoding="utf-8")

    def __init__(
        self,
        title: str = "",
        *,
        unit: Unit = "",
        window_s: float | None = None,
        clock: bool = False,
        low: float | None = None,
        empty: str = "No data yet",
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        axis = Axis.CLOCK if clock else Axis.AGO
        self._options = ChartOptions(title, unit, window_s, axis=axis, low=low, empty=empty)
        self._curves: tuple[Curve, ...] = ()
        self._marks: tuple[Mark, ...] = ()
        self._now_s: float | None = None
        self._picture = Picture(Grid(0, 0))
        self._drawn_with: Symbols | None = None
        self._base = Style()
        self._styles: dict[str, Style] = {}
        self._strips: dict[int, Strip] = {}
        """The painted rows that have not changed since."""

    @property
    def window_s(self) -> float | None:
        """How much time is shown; None is everything."""
        return self._options.window_s

    @property
    def options(self) -> ChartOptions:
        """How it is drawn."""
        return self._options

    @property
    def stretch(self) -> Stretch | None:
        """The range of the axis in each of its columns; None before the first drawing."""
        return self._picture.stretch

    def set_options(self, options: ChartOptions) -> None:
        self._restyle(options)

    def set_empty(self, text: str) -> None:
        """The text without any point."""
        self._restyle(replace(self._options, empty=text))

    def set_curves(self, curves: Sequence[Curve], now_s: float | None = None) -> None:
        """Show these curves. Their arrays may have grown since: they are read again."""
        self._curves, self._now_s = tuple(map(self._folded, curves)), now_s
        self._redraw()

    def set_all(
        self, curves: Sequence[Curve], marks: Sequence[Mark], options: ChartOptions, now: float
    ) -> None:
        """Everything at once, drawn once."""
        self._curves, self._now_s = tuple(map(self._folded, curves)), now
        self._marks, self._options = tuple(marks), options
        self._redraw()

    def set_marks(self, marks: Sequence[Mark]) -> None:
        if tuple(marks) != self._marks:
            self._marks = tuple(marks)
            self._redraw()

    def text(self) -> str:
        """The content, without colours."""
        return self._picture.grid.text()

    def on_resize(self) -> None:
        self._redraw()

    def render_line(self, y: int) -> Strip:
        if self._drawn_with is not symbols():
            self._draw()
            self._strips.clear()
        if self._palette is None:
            self._base = self.rich_style
            self._styles.clear()
            self._strips.clear()
        strip = self._strips.get(y)
        if strip is None:
            strip = self._strips[y] = self._strip(y)
        return strip

    def _strip(self, y: int) -> Strip:
        grid = self._picture.grid
        if y >= grid.height:
            return Strip.blank(self.size.width, self._base)
        segments: list[Segment] = []
        characters, text = grid.characters[y], grid.styles[y]
        begin, style = 0, text[0]
        for x, here in enumerate(text):
            # A space has no colour: it joins the previous segment, which reduces the output.
            if here != style and characters[x] != " ":
                if x > begin:
                    segments.append(self._segment(characters[begin:x], style))
                begin, style = x, here
        segments.append(self._segment(characters[begin:], style))
        strip = Strip(segments, grid.width)
        width = self.size.width
        return strip if grid.width == width else strip.adjust_cell_length(width, self._base)

    def _segment(self, characters: Sequence[str], text: str) -> Segment:
        style = self._styles.get(text)
        if style is None:
            style = self._styles[text] = self._base + self.palette.style(text)
        return Segment("".join(characters), style)

    def _restyle(self, options: ChartOptions) -> None:
        if options != self._options:
            self._options = options
            self._redraw()

    def _draw(self) -> None:
        now_s = self._now_s
        if now_s is None:
            now_s = max((curve.times[-1] for curve in self._curves if len(curve.times)), default=0)
        self._drawn_with = symbols()
        width, height = self.size
        self._picture = compose(
            width, height, self._curves, self._marks, self._options, now_s, self._drawn_with
        )

    def _redraw(self) -> None:
        if not self.size:
            return
        before = self._picture.grid
        self._draw()
        after = self._picture.grid
        if (before.width, before.height) != (after.width, after.height):
            self._strips.clear()
            self.refresh()
            return
        dirty = [region for y in range(after.height) for region in _differences(before, after, y)]
        for region in dirty:
            self._strips.pop(region.y, None)
        if dirty:
            self.refresh(*dirty)

    def _folded(self, curve: Curve) -> Curve:
        """With the points of the last time, when they are of the same arrays."""
        if curve.points is not None:
            return curve
        for earlier in self._curves:
            points = earlier.points
            if points and earlier.times is curve.times and earlier.values is curve.values:
                points.sync()
                return replace(curve, points=points)
        return replace(curve, points=Points(curve))


def _differences(before: Grid, after: Grid, y: int) -> list[Region]:
    """The cells of a row that are not the same, those near to each other in one region."""
    old, new = before.characters[y], after.characters[y]
    old_styles, new_styles = before.styles[y], after.styles[y]
    if old == new and old_styles == new_styles:
        return []
    found: list[Region] = []
    first = last = -1
    for x in range(after.width):
        if old[x] == new[x] and old_styles[x] == new_styles[x]:
            continue
        if first >= 0 and x - last > NEAR_CELLS:
            found.append(Region(first, y, last - first + 1, 1))
            first = x
        first, last = (x if first < 0 else first), x
    found.append(Region(first, y, last - first + 1, 1))
    return found
