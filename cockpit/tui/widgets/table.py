"""A live table that repaints only the cells that changed.

Textual's DataTable repaints its whole region for one changed cell (26 KB at 200×50); this one
marks the changed cells alone as dirty (some 300 bytes).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.cache import LRUCache
from textual.geometry import Region
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from cockpit.tui.cells import fit
from cockpit.tui.theme import Palette
from cockpit.tui.widgets.columns import Column, Place, lay_out
from cockpit.tui.widgets.rowlines import (
    Cell,
    Row,
    changed_regions,
    header_strip,
    row_strip,
    widen,
)
from cockpit.tui.widgets.scrolling import set_virtual_height

__all__ = ["Cell", "Column", "LineTable", "Row"]

WHEEL_LINES = 3
HEADER_LINES = 1


class LineTable(ScrollView, can_focus=True):
    """Rows under a fixed header, with a cursor that stays on its row's key."""

    DEFAULT_CSS = Path(__file__).with_suffix(".tcss").read_text(encoding="utf-8")

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "line-table--header",
        "line-table--zebra",
        "line-table--cursor",
        "line-table--empty",
    }

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "cursor(1)", "Down", show=False),
        Binding("k,up", "cursor(-1)", "Up", show=False),
        Binding("g,home", "first", "First", show=False),
        Binding("G,end", "last", "Last", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False),
        Binding("enter", "select", "Open", show=False),
    ]

    class Highlighted(Message):
        """The cursor came to stand on another row."""

        def __init__(self, table: LineTable, key: str) -> None:
            super().__init__()
            self.table, self.key = table, key

        @property
        def control(self) -> LineTable:
            return self.table

    class Selected(Message):
        """Enter on a row, or a double click."""

        def __init__(self, table: LineTable, key: str) -> None:
            super().__init__()
            self.table, self.key = table, key

        @property
        def control(self) -> LineTable:
            return self.table

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        empty: str = "",
        zebra: bool = False,
        newest_first: bool = False,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """`newest_first`: a cursor on the first row stays there when others come before it."""
        super().__init__(id=id, classes=classes)
        self._newest_first = newest_first
        self._columns = tuple(columns)
        self._empty = empty
        self._zebra = zebra
        self._rows: tuple[Row, ...] = ()
        self._index: dict[str, int] = {}
        self._cursor = 0
        self._widest = [0] * len(self._columns)
        self._places: tuple[Place, ...] = ()
        self._room = -1
        self._sort: tuple[str, bool] = ("", False)
        self._strips: LRUCache[tuple[Row, str], Strip] = LRUCache(1024)
        self._palette: Palette | None = None
        self._styles_by_name: dict[str, Style] = {}

    @property
    def rows(self) -> tuple[Row, ...]:
        return self._rows

    @property
    def columns(self) -> tuple[Column, ...]:
        return self._columns

    @property
    def cursor_key(self) -> str | None:
        """The key of the row under the cursor; None without rows."""
        return self._rows[self._cursor].key if self._rows else None

    @property
    def sort_key(self) -> str:
        """The column whose header carries the sort marker."""
        return self._sort[0]

    @property
    def reverse(self) -> bool:
        return self._sort[1]

    @property
    def visible_columns(self) -> tuple[str, ...]:
        """The keys of the columns that there is room for."""
        return tuple(place.column.key for place in self._places)

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Other columns; the rows go, since their cells belong to the old ones."""
        self._columns = tuple(columns)
        self._widest = [0] * len(self._columns)
        self.set_rows(())
        self._lay_out()

    def set_empty(self, text: str) -> None:
        """What to say when there are no rows."""
        if text != self._empty:
            self._empty = text
            if not self._rows:
                self.refresh()

    def set_sort(self, key: str, reverse: bool = False) -> None:
        """Mark a column as the one that the caller has sorted by."""
        if (key, reverse) != self._sort:
            self._sort = (key, reverse)
            self._refresh_line(0)

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show these rows. What is the same as before is not painted again."""
        before, cursor_key = self._rows, self.cursor_key
        rows = tuple(rows)
        if rows == before:
            return
        was_visible = self._is_visible(self._cursor)
        self._rows = rows
        self._index = {row.key: i for i, row in enumerate(rows)}
        self._cursor = (
            self._index[cursor_key]
            if cursor_key in self._index and not (self._newest_first and self._cursor == 0)
            else max(0, min(self._cursor, len(rows) - 1))
        )
        changed = [i for i, (old, new) in enumerate(zip(before, rows, strict=False)) if old != new]
        if self._measure(rows, changed, len(before)):
            self._lay_out()
        elif not before or not rows:
            self.refresh()
        else:
            self._refresh_changes(before, changed)
        if len(rows) != len(before):
            self._set_height()
        old_index = self._index_in(before, cursor_key)
        if old_index != self._cursor:
            self._refresh_row(self._cursor)
            if old_index is not None:
                self._refresh_row(old_index)
            if was_visible:
                self._show_cursor()
        if self.cursor_key is not None and self.cursor_key != cursor_key:
            self.post_message(self.Highlighted(self, self.cursor_key))

    def move_to(self, key: str) -> bool:
        """Put the cursor on that row; False when there is none."""
        if key not in self._index:
            return False
        self._move(self._index[key])
        return True

    def action_cursor(self, by: int) -> None:
        self._move(self._cursor + by)

    def action_page(self, by: int) -> None:
        self._move(self._cursor + by * max(1, self._page - 1))

    def action_first(self) -> None:
        self._move(0)

    def action_last(self) -> None:
        self._move(len(self._rows) - 1)

    def action_select(self) -> None:
        if self.cursor_key is not None:
            self.post_message(self.Selected(self, self.cursor_key))

    def on_click(self, event: events.Click) -> None:
        row = event.y - HEADER_LINES + self.scroll_offset.y
        if event.y < HEADER_LINES or row >= len(self._rows):
            return
        event.stop()
        self._move(row)
        if event.chain == 2:
            self.action_select()

    # The inherited wheel handlers animate, which repaints the table several times a notch.
    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, -WHEEL_LINES)

    def _wheel(self, event: events.MouseEvent, lines: int) -> None:
        event.prevent_default()
        before = self.scroll_offset.y
        self.scroll_to(y=before + lines, animate=False, force=True)
        if self.scroll_offset.y != before:
            event.stop()

    def on_resize(self) -> None:
        self._widest = [0] * len(self._columns)
        self._measure(self._rows, range(len(self._rows)), len(self._rows))
        self._lay_out()
        self._set_height()

    def notify_style_update(self) -> None:
        self._palette = None
        self._styles_by_name.clear()
        self._strips.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_size.width
        if width != self._room:
            # A scrollbar that comes or goes changes the width without a resize.
            self._place()
        if y < HEADER_LINES:
            return self._header(width)
        if not self._rows:
            return self._empty_line(y - HEADER_LINES, width)
        i = y - HEADER_LINES + self.scroll_offset.y
        if i >= len(self._rows):
            return Strip.blank(width, self.rich_style)
        kind = "cursor" if i == self._cursor else "zebra" if self._zebra and i % 2 else ""
        row = self._rows[i]
        strip = self._strips.get((row, kind))
        if strip is None:
            strip = self._strips[(row, kind)] = self._line(row, kind, width)
        return strip

    @property
    def _page(self) -> int:
        return max(0, self.size.height - HEADER_LINES)

    def _line(self, row: Row, kind: str, width: int) -> Strip:
        base = self._component(kind) if kind else self.rich_style
        # In 16 colours the cursor is a block of one colour, on which others cannot be read.
        plain = kind == "cursor" and self.app.native_ansi_color
        muted = not (kind == "cursor" and self.has_focus)
        palette = None if plain else self._colors()
        return row_strip(row, self._places, width, base, palette, muted=muted)

    def _header(self, width: int) -> Strip:
        style = self._component("header")
        marked = style + self._colors().style("accent")
        return header_strip(self._places, width, style, marked, *self._sort)

    def _empty_line(self, y: int, width: int) -> Strip:
        base = self.rich_style
        if y != min(1, max(0, self._page - 1)) or not self._empty:
            return Strip.blank(width, base)
        style = base + self._component("empty") + self._colors().style("muted")
        return Strip([Segment(fit(f"  {self._empty}", width), style)], width)

    def _measure(self, rows: Sequence[Row], changed: Sequence[int], known: int) -> bool:
        """Widen the columns to the changed and the added rows; whether one became wider.

        Columns do not become narrower as the numbers in them do, so that the table stands still.
        """
        before = list(self._widest)
        fresh = [rows[i] for i in changed] + list(rows[known:])
        free = [i for i, column in enumerate(self._columns) if column.width is None]
        widen(self._widest, free, fresh)
        return self._widest != before

    def _place(self) -> None:
        self._room = self.scrollable_size.width
        self._places = lay_out(self._columns, self._widest, self._room)
        self._strips.clear()

    def _lay_out(self) -> None:
        self._place()
        self.refresh()

    def _set_height(self) -> None:
        set_virtual_height(self, len(self._rows) + HEADER_LINES)

    def _refresh_changes(self, before: tuple[Row, ...], changed: Sequence[int]) -> None:
        rows, top = self._rows, self.scroll_offset.y
        bottom = top + self._page
        dirty: list[Region] = []
        for i in changed:
            if top <= i < bottom:
                y = i - top + HEADER_LINES
                dirty += changed_regions(before[i], rows[i], self._places, y, self.size.width)
        for i in range(*sorted((len(before), len(rows)))):
            if top <= i < bottom:
                dirty.append(Region(0, i - top + HEADER_LINES, self.size.width, 1))
        if dirty:
            self.refresh(*dirty)

    def _move(self, index: int) -> None:
        index = max(0, min(index, len(self._rows) - 1))
        if index == self._cursor or not self._rows:
            self._show_cursor()
            return
        self._refresh_row(self._cursor)
        self._cursor = index
        self._refresh_row(index)
        self._show_cursor()
        self.post_message(self.Highlighted(self, self._rows[index].key))

    def _show_cursor(self) -> None:
        top = self.scroll_offset.y
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False, force=True)
        elif self._page and self._cursor >= top + self._page:
            self.scroll_to(y=self._cursor - self._page + 1, animate=False, force=True)

    def _is_visible(self, index: int) -> bool:
        return 0 <= index - self.scroll_offset.y < max(1, self._page)

    def _refresh_row(self, index: int) -> None:
        if self._is_visible(index):
            self._refresh_line(index - self.scroll_offset.y + HEADER_LINES)

    def _refresh_line(self, y: int) -> None:
        self.refresh(Region(0, y, self.size.width, 1))

    @staticmethod
    def _index_in(rows: Sequence[Row], key: str | None) -> int | None:
        return next((i for i, row in enumerate(rows) if row.key == key), None)

    def _colors(self) -> Palette:
        if self._palette is None:
            self._palette = Palette.of(self.app)
        return self._palette

    def _component(self, name: str) -> Style:
        if name not in self._styles_by_name:
            self._styles_by_name[name] = self.get_component_rich_style(f"line-table--{name}")
        return self._styles_by_name[name]
