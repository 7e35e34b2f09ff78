"""A whole chart as a grid of styled characters. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cockpit.tui.cells import fit, width_of
from cockpit.tui.symbols import Symbols
from cockpit.tui.widgets.axis import Unit, extent, time_labels, value_text, y_axis
from cockpit.tui.widgets.grid import Grid
from cockpit.tui.widgets.plot import Canvas, bounds, pixels_wide, trace

MarkKind = Literal["drill", "attempt", "checkpoint", "mark"]

MARKS: dict[MarkKind, tuple[str, str]] = {
    "drill": ("D", "bad"),
    "attempt": ("A", "warning"),
    "mark": ("M", "accent"),
    "checkpoint": ("C", "good"),
}
"""The flag and the colour of each kind; of two in one column, the first kind here is shown."""

LEAST_FOR_Y_LABELS = 24
LEAST_FOR_TIME_AXIS = 5
LEAST_FOR_LEGEND = 4
CELLS_A_CHECKPOINT = 16
"""With less room than this for each, checkpoints are ticks on the time axis only."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Points by rising time, Unix seconds. The arrays are read, not copied."""

    label: str
    times: Sequence[float]
    values: Sequence[float]
    color: str = "curve-1"
    """Words as in `Palette.style`."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An instant worth a vertical line."""

    at_s: float
    label: str
    kind: MarkKind


@dataclass(frozen=True, slots=True)
class Look:
    """How a chart is drawn, whatever its data."""

    title: str = ""
    unit: Unit = ""
    window_s: float | None = None
    """None: everything there is."""
    clock: bool = False
    """Label the time axis with the time of day, not with time ago."""
    low: float | None = None
    high: float | None = None
    """Fixed ends of the value axis."""
    empty: str = "No data yet"


@dataclass(frozen=True, slots=True)
class _Lines:
    """The characters of axes and marks."""

    axis: str
    tick: str
    corner: str
    floor: str
    mark: str
    below: str
    nan: str
    dot: str


_UNICODE = _Lines("│", "┤", "└", "─", "┊", "┴", "×", "●")
_ASCII = _Lines("|", "+", "+", "-", ":", "'", "x", "*")


def draw(
    width: int,
    height: int,
    curves: Sequence[Curve],
    marks: Sequence[Mark],
    look: Look,
    now_s: float,
    symbols: Symbols,
) -> Grid:
    """Draw the chart in so many cells."""
    grid = Grid(max(0, width), max(0, height))
    if width < 1 or height < 1:
        return grid
    lines = _ASCII if symbols is Symbols.ASCII else _UNICODE
    curves = [curve for curve in curves if len(curve.times)]
    if not curves:
        if look.title and height > 1:
            grid.put(0, 0, fit(look.title, width).rstrip(), "bold")
        text = fit(look.empty, width) if width_of(look.empty) > width else look.empty
        grid.put((width - width_of(text)) // 2, height // 2, text, "muted")
        return grid
    legend = height >= LEAST_FOR_LEGEND and bool(look.title or any(c.label for c in curves))
    floor = height >= LEAST_FOR_TIME_AXIS
    top_row = int(legend)
    rows = height - top_row - int(floor)

    # The labels' width depends on the values in the window, whose end depends on that width by a
    # pixel: near enough.
    starts = [curve.times[0] for curve in curves]
    start_s, end_s = extent(starts, now_s, look.window_s, pixels_wide(width, symbols))
    low, high = _bounds(curves, start_s, end_s, look)
    bottom, top, labels = y_axis(low, high, rows, look.unit)
    if look.low is not None:
        bottom = look.low
    if look.high is not None:
        top = look.high
    left = 0
    if width >= LEAST_FOR_Y_LABELS and rows > 1:
        left = max((width_of(text) for _, text in labels), default=0) + 1
        left = left if left <= width // 2 else 0
    cells = width - left

    pixels = pixels_wide(cells, symbols)
    start_s, end_s = extent(starts, now_s, look.window_s, pixels)
    traces = [trace(c.times, c.values, start_s, end_s, pixels) for c in curves]
    canvas = Canvas(cells, rows, symbols)
    for number in reversed(range(len(traces))):
        canvas.draw(traces[number], bottom, top, number)

    if legend:
        _legend(grid, look, curves, lines)
    if left:
        _values(grid, left, top_row, rows, labels, bottom, top, lines)
    if floor:
        _floor(grid, left, start_s, end_s, now_s, look, lines)
    _mark(grid, left, top_row, rows, marks, start_s, end_s, lines, floor=floor)
    for y in range(rows):
        for x, character, number in canvas.drawn(y):
            grid.characters[top_row + y][left + x] = character
            grid.styles[top_row + y][left + x] = curves[number].color
    _flags(grid, left, top_row, canvas, marks, start_s, end_s)
    for one in traces:
        for pixel, missing in enumerate(one.nan):
            if missing:
                grid.put(left + pixel * cells // pixels, top_row + rows - 1, lines.nan, "bold bad")
    return grid


def _bounds(
    curves: Sequence[Curve], start_s: float, end_s: float, look: Look
) -> tuple[float, float]:
    found = [
        both for c in curves if (both := bounds(c.times, c.values, start_s, end_s)) is not None
    ]
    low = look.low if look.low is not None else min((a for a, _ in found), default=0.0)
    high = look.high if look.high is not None else max((b for _, b in found), default=1.0)
    return (low, high) if low <= high else (high, low)


def _legend(grid: Grid, look: Look, curves: Sequence[Curve], lines: _Lines) -> None:
    x = 0
    if look.title:
        title = fit(look.title, grid.width).rstrip()
        grid.put(0, 0, title, "bold")
        x = width_of(title) + 2
    for number, curve in enumerate(curves):
        value = value_text(curve.values[-1], look.unit)
        text = f"{curve.label} {value}".strip()
        more = f"+{len(curves) - number}"
        needed = width_of(text) + 2
        rest = 0 if number == len(curves) - 1 else width_of(more) + 2
        if x + needed + rest > grid.width and x + needed + (rest and 3) > grid.width:
            grid.put(x, 0, more, "muted")
            return
        grid.put(x, 0, lines.dot, curve.color)
        grid.put(x + 2, 0, text, "bad" if math.isnan(curve.values[-1]) else "")
        x += needed + 2


def _values(
    grid: Grid,
    left: int,
    top_row: int,
    rows: int,
    labels: Sequence[tuple[float, str]],
    bottom: float,
    top: float,
    lines: _Lines,
) -> None:
    for y in range(rows):
        grid.put(left - 1, top_row + y, lines.axis, "muted")
    taken = -2
    for value, text in labels:
        if not bottom <= value <= top:
            continue
        y = round((top - value) / (top - bottom) * (rows - 1))
        if abs(y - taken) > 1:
            grid.put(left - 1, top_row + y, lines.tick, "muted")
            grid.put(left - 1 - width_of(text), top_row + y, text, "muted")
            taken = y


def _floor(
    grid: Grid, left: int, start_s: float, end_s: float, now_s: float, look: Look, lines: _Lines
) -> None:
    y = grid.height - 1
    cells = grid.width - left
    grid.put(left, y, lines.floor * cells, "muted")
    if left:
        grid.put(left - 1, y, lines.corner, "muted")
    free = left
    labels = time_labels(start_s, end_s, now_s, cells, clock=look.clock)
    for cell, label in labels:
        x = min(left + cell - len(label) // 2, grid.width - len(label) - 1)
        if x > free and x + len(label) < grid.width:
            grid.put(x - 1, y, f" {label} ", "muted")
            free = x + len(label) + 1


def _columns(marks: Sequence[Mark], start_s: float, end_s: float, cells: int) -> dict[int, Mark]:
    """The one mark that is shown in each column that has any."""
    order = list(MARKS)
    found: dict[int, Mark] = {}
    for mark in marks:
        if start_s <= mark.at_s < end_s:
            x = min(cells - 1, int((mark.at_s - start_s) / (end_s - start_s) * cells))
            if x not in found or order.index(mark.kind) <= order.index(found[x].kind):
                found[x] = mark
    crowd = sum(mark.kind == "checkpoint" for mark in found.values())
    if crowd * CELLS_A_CHECKPOINT > cells:
        return {x: mark for x, mark in found.items() if mark.kind != "checkpoint"}
    return found


def _mark(
    grid: Grid,
    left: int,
    top_row: int,
    rows: int,
    marks: Sequence[Mark],
    start_s: float,
    end_s: float,
    lines: _Lines,
    *,
    floor: bool,
) -> None:
    cells = grid.width - left
    for x, mark in _columns(marks, start_s, end_s, cells).items():
        style = MARKS[mark.kind][1]
        for y in range(rows):
            grid.put(left + x, top_row + y, lines.mark, style)
    if not floor:
        return
    y = grid.height - 1
    for mark in marks:
        if mark.kind == "checkpoint" and start_s <= mark.at_s < end_s:
            x = left + min(cells - 1, int((mark.at_s - start_s) / (end_s - start_s) * cells))
            if grid.characters[y][x] == lines.floor:
                grid.put(x, y, lines.below, MARKS["checkpoint"][1])


def _flags(
    grid: Grid,
    left: int,
    top_row: int,
    canvas: Canvas,
    marks: Sequence[Mark],
    start_s: float,
    end_s: float,
) -> None:
    """The letter of each mark, over whatever is there; its label where nothing is in the way."""
    columns = _columns(marks, start_s, end_s, canvas.width)
    places = sorted(columns)
    for number, x in enumerate(places):
        flag, style = MARKS[columns[x].kind]
        grid.put(left + x, top_row, flag, f"bold {style}")
        label = columns[x].label
        following = places[number + 1] if number + 1 < len(places) else canvas.width
        end = x + 2 + width_of(label)
        if label and end < following and not any(canvas.is_drawn(n, 0) for n in range(x + 1, end)):
            grid.put(left + x + 2, top_row, label, style)
