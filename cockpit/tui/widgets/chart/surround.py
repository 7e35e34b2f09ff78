"""The surroundings of the curves of a chart: its title, its legend and its axes. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from cockpit.tui.terminal.cells import fit, width_of
from cockpit.tui.terminal.symbols import Symbols
from cockpit.tui.widgets.chart.axis import value_text
from cockpit.tui.widgets.chart.grid import Grid
from cockpit.tui.widgets.chart.marks import Stretch
from training.telemetry.metric_table import Unit


class Lines(Struct, frozen=True):
    """The characters of axes and marks."""

    axis: str
    tick: str
    corner: str
    floor: str
    mark: str
    below: str
    nan: str
    infinite: str
    dot: str
    cursor: str
    chosen: str


_UNICODE = Lines("│", "┤", "└", "─", "┊", "┴", "×", "∞", "●", "│", "▶")
_ASCII = Lines("|", "+", "+", "-", ":", "'", "x", "^", "*", "|", ">")


def lines_of(symbols: Symbols) -> Lines:
    """The characters for that set."""
    return _ASCII if symbols is Symbols.ASCII else _UNICODE


def title(grid: Grid, lines: Lines, text: str, *, selected: bool) -> int:
    """In the first row; the start of free space after it."""
    if not text:
        return 0
    pointer = f"{lines.chosen} " if selected else ""
    shown = fit(pointer + text, grid.width).rstrip()
    grid.put(0, 0, shown, "bold accent" if selected else "bold")
    return width_of(shown) + 2


def legend(
    grid: Grid, lines: Lines, x: int, entries: Sequence[tuple[str, str, float | None]], unit: Unit
) -> None:
    """Each curve's label and value, after `x`; without room for all, the number of the others.

    `entries`: (label, colour, value).
    """
    for number, (label, color, value) in enumerate(entries):
        message = "–" if value is None else value_text(value, unit)
        text = f"{label} {message}".strip()
        more = f"+{len(entries) - number}"
        needed = width_of(text) + 2
        rest = 0 if number == len(entries) - 1 else width_of(more) + 2
        if x + needed + rest > grid.width:
            grid.put(x, 0, more, "muted")
            return
        grid.put(x, 0, lines.dot, color)
        bad = value is not None and not math.isfinite(value)
        grid.put(x + 2, 0, text, "bad" if bad else "")
        x += needed + 2


def values(
    grid: Grid,
    lines: Lines,
    left: int,
    top_row: int,
    rows: tuple[int, int],
    labels: Sequence[tuple[float, str]],
    ends: tuple[float, float],
) -> None:
    """The value axis in the column before `left`. `rows`: of the curves, and of the axis."""
    plot_rows, all_rows = rows
    bottom, top = ends
    for y in range(all_rows):
        grid.put(left - 1, top_row + y, lines.axis, "muted")
    taken = -2
    for value, text in labels:
        if not bottom <= value <= top or top <= bottom:
            continue
        y = round((top - value) / (top - bottom) * (plot_rows - 1))
        if abs(y - taken) > 1:
            grid.put(left - 1, top_row + y, lines.tick, "muted")
            grid.put(left - 1 - width_of(text), top_row + y, text, "muted")
            taken = y


def floor(grid: Grid, lines: Lines, stretch: Stretch, labels: Sequence[tuple[int, str]]) -> None:
    """The axis of time or steps in the last row, with the labels that have room."""
    y, left = grid.height - 1, stretch.left
    grid.put(left, y, lines.floor * stretch.cells, "muted")
    if left:
        grid.put(left - 1, y, lines.corner, "muted")
    free = left
    for cell, label in labels:
        x = min(left + cell - len(label) // 2, grid.width - len(label) - 1)
        if x > free and x + len(label) < grid.width:
            grid.put(x - 1, y, f" {label} ", "muted")
            free = x + len(label) + 1
