"""Rows of a table, and how one is drawn. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip

from cockpit.tui.terminal.cells import fit, width_of
from cockpit.tui.terminal.symbols import Symbols, symbols
from cockpit.tui.theme import Palette
from cockpit.tui.widgets.table.columns import Place


class Cell(NamedTuple):
    """Text and its style, see `Palette.style`. A tuple, since tuples compare fast."""

    text: str
    style: str = ""


_NO_CELL = Cell("")


class Row(NamedTuple):
    """One line; `key` names what it shows, and is unique in the table."""

    key: str
    cells: tuple[Cell, ...]
    style: str = ""
    """For cells without a style."""


def row_strip(
    row: Row,
    places: Sequence[Place],
    width: int,
    base: Style,
    palette: Palette | None,
    *,
    muted: bool = True,
) -> Strip:
    """The row as one line. Without a palette every cell has the base's colours.

    `muted=False` draws muted cells in the base's colour, for a background on which grey is not
    readable.
    """
    segments: list[Segment] = []
    x = 0
    for place in places:
        text, message = row.cells[place.index] if place.index < len(row.cells) else _NO_CELL
        message = message or row.style
        if not muted:
            message = message.replace("muted", "")
        style = base + palette.style(message) if palette else base
        if place.x > x:
            segments.append(Segment(" " * (place.x - x), base))
        segments.append(
            Segment(fit(text, place.width, place.column.align, place.column.cut), style)
        )
        x = place.x + place.width
    segments.append(Segment(" " * max(0, width - x), base))
    # Neighbours of one style become one: each has its colours written out before it.
    return Strip(segments).simplify().adjust_cell_length(width, base)


def header_strip(
    places: Sequence[Place], width: int, style: Style, marked: Style, sort_key: str, reverse: bool
) -> Strip:
    """The titles, with an arrow on the column that is sorted by."""
    up, down = ("^", "v") if symbols() is Symbols.ASCII else ("▲", "▼")
    segments: list[Segment] = []
    x = 0
    for place in places:
        column = place.column
        sorted_by = column.key == sort_key
        arrow = (down if reverse else up) if sorted_by else ""
        title = fit(column.title, min(place.width - len(arrow), width_of(column.title)))
        segments.append(Segment(" " * (place.x - x), style))
        text = fit(title + arrow, place.width, column.align)
        segments.append(Segment(text, marked if sorted_by else style))
        x = place.x + place.width
    return Strip(segments).adjust_cell_length(width, style)


def widen(widest: list[int], columns: Sequence[int], rows: Iterable[Row]) -> None:
    """Raise the widths of these columns to those of the rows' cells."""
    for row in rows:
        for i in columns:
            if i < len(row.cells):
                widest[i] = max(widest[i], width_of(row.cells[i].text))


def changed_regions(
    old: Row, new: Row, places: Sequence[Place], y: int, width: int
) -> list[Region]:
    """The parts of line `y` to paint again."""
    if old.style != new.style or len(old.cells) != len(new.cells):
        return [Region(0, y, width, 1)]
    changed = [
        place
        for place in places
        if place.index < len(new.cells) and old.cells[place.index] != new.cells[place.index]
    ]
    if not changed:
        return []
    # One region: for several regions on a line, Textual paints each from the start of the widget
    # (ChopsUpdate.render_segments crops at the end only), so that ten regions cost ten lines.
    first, last = changed[0], changed[-1]
    return [Region(first.x, y, last.x + last.width - first.x, 1)]
