"""One cell per rank, coloured by its deviation from the usual; the cursor selects a rank.

The deviation is shown by the colour and by the height of the cell, so that 16 colours and ASCII are
enough. With more ranks than cells, one cell shows the worst of several.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import ClassVar, NamedTuple, TypeAlias

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from cockpit.tui.terminal.cells import fit, width_of
from cockpit.tui.terminal.symbols import Symbols, symbols
from cockpit.tui.widgets.line_widget import LineWidget

USUAL = 2
WORST = 4
NAN, STALE, UNKNOWN = 5, -1, -2
"""Levels that are no distance: not a number, an old number, no number."""

_STYLES = {
    0: "accent", 1: "curve-1", USUAL: "good", 3: "warning", WORST: "bad", NAN: "bold bad",
    STALE: "muted", UNKNOWN: "muted",
}  # fmt: skip
_BLOCKS = {0: "▁", 1: "▃", USUAL: "▄", 3: "▆", WORST: "█", NAN: "!", STALE: "x", UNKNOWN: "·"}
_ASCII = {0: "_", 1: "-", USUAL: "=", 3: "+", WORST: "#", NAN: "!", STALE: "x", UNKNOWN: "."}
_ORDER = (NAN, WORST, 3, STALE, USUAL, 1, 0, UNKNOWN)
"""The worst first: what a cell of several ranks shows."""
_BADNESS = {level: -place for place, level in enumerate(_ORDER)}
_GROUP = 8
"""A line has a multiple of it: nodes have eight GPUs, so that a column is the same GPU of each."""
HEAD_LINES = 1


StyledText: TypeAlias = tuple[tuple[str, str], ...]
"""Texts with their styles that belong together."""


class HeatCell(NamedTuple):
    """One rank: `level` is 0 (far better than usual) to 4 (far worse), or one of the above."""

    rank: int
    level: int
    is_dim: bool = False
    """A filter leaves it out."""


def symbol_of(level: int) -> str:
    return (_ASCII if symbols() is Symbols.ASCII else _BLOCKS)[level]


def style_of(level: int) -> str:
    return _STYLES[level]


def strip_lines(ranks: int, width: int, most: int) -> int:
    """The number of lines, at most `most`, that the cells of the ranks fill."""
    shown = math.ceil(ranks / strip_fold(ranks, width, most))
    return math.ceil(shown / _per_line(ranks, width))


def strip_fold(ranks: int, width: int, most: int) -> int:
    """How many ranks one cell represents in at most `most` lines."""
    return max(1, math.ceil(ranks / (_per_line(ranks, width) * max(1, most))))


def _label(ranks: int) -> int:
    """The cells before a line: its first rank, and a space."""
    return max(3, len(str(max(0, ranks - 1)))) + 2


def _per_line(ranks: int, width: int) -> int:
    room = max(1, width - _label(ranks) - 1)
    return room if room < _GROUP else room // _GROUP * _GROUP


class _RankMessage(Message):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank


class HeatMap(LineWidget, can_focus=True):
    """A line of text, and the ranks below it, line by line."""

    DEFAULT_CSS = """
    HeatMap { height: auto; background: $surface; color: $foreground; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", "The rank before", show=False),
        Binding("right", "move(1)", "The next rank", show=False),
        Binding("up,k", "line(-1)", "A line up", show=False),
        Binding("down,j", "line(1)", "A line down", show=False),
        Binding("home,g", "end(False)", "The first", show=False),
        Binding("end,G", "end(True)", "The last", show=False),
        Binding("enter", "select", "Open", show=False),
    ]

    class Highlighted(_RankMessage):
        """The cursor moved to another rank."""

    class Selected(_RankMessage):
        """Enter on a rank, or a double click."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._cells: tuple[HeatCell, ...] = ()
        self._title: tuple[StyledText, ...] = ()
        self._shown: tuple[HeatCell, ...] = ()
        self._fold = 1
        self._line = 1
        """Cells of one line."""
        self._rank = -1

    @property
    def fold(self) -> int:
        """How many ranks one cell represents."""
        return self._fold

    @property
    def rank(self) -> int | None:
        """The one under the cursor."""
        return self._rank if self._rank >= 0 else None

    def show(self, cells: Sequence[HeatCell], title: Sequence[StyledText]) -> None:
        """`title`: the line above, in parts; the first ones if not all fit."""
        cells, title = tuple(cells), tuple(title)
        if title != self._title:
            self._title = title
            self.refresh(Region(0, 0, self.size.width, 1))
        if cells == self._cells:
            return
        before, fold, line = self._shown, self._fold, self._line
        self._cells = cells
        self._lay_out()
        if (fold, line, len(before)) != (self._fold, self._line, len(self._shown)):
            self.refresh()  # the title contains the number of ranks per cell
            return
        dirty = self._changed(before)
        if dirty:
            self.refresh(*dirty)

    def point_at(self, rank: int) -> None:
        """Put the cursor there without a message."""
        if rank != self._rank:
            self._paint_cursor()
            self._rank = rank
            self._paint_cursor()

    def on_resize(self) -> None:
        self._lay_out()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        if y < HEAD_LINES:
            return self._title_strip(width, base)
        first = (y - HEAD_LINES) * self._line
        here = self._shown[first : first + self._line]
        if not here:
            return Strip.blank(width, base)
        label = _label(len(self._cells))
        at = self._index()
        segments = [
            Segment(fit(str(here[0].rank), label - 1, "right") + " ", self._style("muted", base))
        ]
        drawn = [(number == at, cell) for number, cell in enumerate(here, first)]
        for (is_cursor, level, is_dim), run in groupby(
            drawn, key=lambda pair: (pair[0], pair[1].level, pair[1].is_dim)
        ):
            text = "muted" if is_dim else _STYLES[level]
            if is_cursor:
                text += " reverse bold" if self.has_focus else " reverse"
            segments.append(Segment(symbol_of(level) * len(list(run)), self._style(text, base)))
        return Strip(segments).adjust_cell_length(width, base)

    def on_focus(self) -> None:
        self._paint_cursor()

    def on_blur(self) -> None:
        self._paint_cursor()

    def action_move(self, by: int) -> None:
        self._go(self._index() + by)

    def action_line(self, by: int) -> None:
        to = self._index() + by * self._line
        if 0 <= to < len(self._shown):
            self._go(to)

    def action_end(self, last: bool) -> None:
        self._go(len(self._shown) - 1 if last else 0)

    def action_select(self) -> None:
        if self._shown:
            self.post_message(self.Selected(self._shown[self._index()].rank))

    def on_click(self, event: events.Click) -> None:
        column = event.x - _label(len(self._cells))
        at = (event.y - HEAD_LINES) * self._line + column
        if event.y >= HEAD_LINES and 0 <= column < self._line and at < len(self._shown):
            event.stop()
            self._go(at)
            if event.chain == 2:
                self.action_select()

    def _go(self, index: int) -> None:
        if not self._shown:
            return
        rank = self._shown[max(0, min(index, len(self._shown) - 1))].rank
        if rank != self._rank:
            self.point_at(rank)
            self.post_message(self.Highlighted(rank))

    def _lay_out(self) -> None:
        """Fold the ranks into the cells that there are."""
        ranks = len(self._cells)
        self._line = _per_line(ranks, self.size.width)
        room = self._line * max(1, self.size.height - HEAD_LINES)
        self._fold = max(1, math.ceil(ranks / room))
        if self._fold == 1:
            self._shown = self._cells
            return
        parts = range(0, ranks, self._fold)
        self._shown = tuple(_worst(self._cells[at : at + self._fold]) for at in parts)

    def _index(self) -> int:
        """The cell of the cursor; a folded one represents its neighbours too."""
        found = next((n for n, cell in enumerate(self._cells) if cell.rank == self._rank), 0)
        return found // self._fold

    def _changed(self, before: Sequence[HeatCell]) -> list[Region]:
        left = _label(len(self._cells))
        dirty: list[Region] = []
        for line in range(math.ceil(len(self._shown) / self._line)):
            first = line * self._line
            changed = [
                at - first
                for at in range(first, min(first + self._line, len(self._shown)))
                if before[at][1:] != self._shown[at][1:]
            ]
            if changed:
                # One region a line: Textual paints each from where the widget begins.
                begin, end = changed[0], changed[-1]
                dirty.append(Region(left + begin, line + HEAD_LINES, end - begin + 1, 1))
        return dirty

    def _paint_cursor(self) -> None:
        if self._shown and self._rank >= 0:
            line, column = divmod(self._index(), self._line)
            x = _label(len(self._cells)) + column
            self.refresh(Region(x, line + HEAD_LINES, 1, 1))

    def _title_strip(self, width: int, base: Style) -> Strip:
        segments: list[Segment] = []
        used = 0
        title = list(self._title)
        if self._fold > 1:
            title.insert(1, ((f"a cell is the worst of {self._fold}  ", "warning"),))
        for part in title:
            cells = sum(width_of(text.rstrip()) for text, _ in part)
            if used + cells > width:
                break
            for text, message in part:
                segments.append(Segment(text, self._style(message, base)))
                used += width_of(text)
        return Strip(segments).adjust_cell_length(width, base)

    def _style(self, text: str, base: Style) -> Style:
        return base + self.palette.style(text)


def _worst(cells: Sequence[HeatCell]) -> HeatCell:
    """The value of several ranks: filtered ones count only if all are filtered."""
    there = [cell for cell in cells if not cell.is_dim] or cells
    return max(there, key=lambda cell: _BADNESS[cell.level])
