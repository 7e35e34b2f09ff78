"""Instants worth a vertical line: what happened, on the axis of a chart. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from cockpit.tui.terminal.cells import width_of
from cockpit.tui.widgets.chart.canvas import Canvas
from cockpit.tui.widgets.chart.grid import Grid

MarkKind = Literal["drill", "alert", "attempt", "mark", "cleared", "checkpoint"]

MARKS: dict[MarkKind, tuple[str, str]] = {
    "drill": ("D", "bad"),
    "alert": ("!", "bad"),
    "attempt": ("A", "warning"),
    "mark": ("M", "accent"),
    "cleared": ("~", "good"),
    "checkpoint": ("C", "good"),
}
"""The flag and the colour of each kind; of two in one column, the first kind here is shown."""
_RANKS = {kind: number for number, kind in enumerate(MARKS)}
CELLS_A_CHECKPOINT = 16
"""With less room than this for each, checkpoints are ticks on the axis only."""


class Mark(Struct, frozen=True):
    """An instant, in the unit of the chart's axis."""

    at: float
    label: str
    kind: MarkKind


class Stretch(Struct, frozen=True):
    """The range of an axis in the cells of a grid."""

    left: int
    cells: int
    start: float
    end: float

    def cell(self, place: float) -> int | None:
        """The column of the grid; None outside."""
        if not self.start <= place < self.end or self.cells < 1:
            return None
        share = (place - self.start) / (self.end - self.start)
        return self.left + min(self.cells - 1, int(share * self.cells))

    def place(self, cell: float) -> float:
        """The middle of a column of the grid, on the axis; beyond the ends, the end."""
        at = min(max(cell - self.left, 0), self.cells - 1)
        return self.start + (at + 0.5) * self.cell_size

    @property
    def cell_size(self) -> float:
        return (self.end - self.start) / max(1, self.cells)


def columns(marks: Sequence[Mark], stretch: Stretch) -> dict[int, Mark]:
    """The one mark that is shown in each column that has any."""
    found: dict[int, Mark] = {}
    for mark in marks:
        x = stretch.cell(mark.at)
        if x is not None and (x not in found or _RANKS[mark.kind] <= _RANKS[found[x].kind]):
            found[x] = mark
    crowd = sum(mark.kind == "checkpoint" for mark in found.values())
    if crowd * CELLS_A_CHECKPOINT > stretch.cells:
        return {x: mark for x, mark in found.items() if mark.kind != "checkpoint"}
    return found


def lines(grid: Grid, shown: dict[int, Mark], top: int, rows: int, character: str) -> None:
    """A vertical line for each."""
    for x, mark in shown.items():
        style = MARKS[mark.kind][1]
        for y in range(top, top + rows):
            grid.put(x, y, character, style)


def ticks(grid: Grid, marks: Sequence[Mark], stretch: Stretch, character: str, floor: str) -> None:
    """A tick for each checkpoint, where the axis in the last row has no label."""
    y = grid.height - 1
    for mark in marks:
        if mark.kind != "checkpoint":
            continue
        x = stretch.cell(mark.at)
        if x is not None and grid.characters[y][x] == floor:
            grid.put(x, y, character, MARKS["checkpoint"][1])


def flags(grid: Grid, shown: dict[int, Mark], top: int, canvas: Canvas, stretch: Stretch) -> None:
    """The letter of each mark, over the curves; its label where there is room."""
    places = sorted(shown)
    left, right = stretch.left, stretch.left + stretch.cells
    for number, x in enumerate(places):
        flag, style = MARKS[shown[x].kind]
        grid.put(x, top, flag, f"bold {style}")
        label = shown[x].label
        following = places[number + 1] if number + 1 < len(places) else right
        end = x + 2 + width_of(label)
        free = not any(canvas.is_drawn(n - left, 0) for n in range(x + 1, min(end, right)))
        if label and end < following and free:
            grid.put(x + 2, top, label, style)
