"""A live table with a cursor that stays on its row when rows are added or removed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from cockpit.tui.terminal.compositor import paint_now
from cockpit.tui.widgets.table.columns import Column
from cockpit.tui.widgets.table.lazy_rows import LazyRows
from cockpit.tui.widgets.table.row_lines import Cell, Row
from cockpit.tui.widgets.table.row_view import HEADER_LINES, RowLines

__all__ = ["Cell", "Column", "LazyRows", "LineTable", "Row"]

WHEEL_LINES = 3


class _RowMessage(Message):
    def __init__(self, table: LineTable, key: str) -> None:
        super().__init__()
        self.table, self.key = table, key

    @property
    def control(self) -> LineTable:
        return self.table


class LineTable(RowLines, can_focus=True):
    """Rows under a fixed header, with a cursor that stays on its row's key."""

    DEFAULT_CSS = Path(__file__).with_suffix(".tcss").read_text(encoding="utf-8")

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "cursor(1)", "Down", show=False),
        Binding("k,up", "cursor(-1)", "Up", show=False),
        Binding("g,home", "first", "First", show=False),
        Binding("G,end", "last", "Last", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False),
        Binding("enter", "select", "Open", show=False),
    ]

    class Highlighted(_RowMessage):
        """The cursor moved to another row."""

    class Selected(_RowMessage):
        """Enter on a row, or a double click."""

    class HeaderClicked(_RowMessage):
        """A click on the title of the column `key`."""

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
        """`newest_first`: a cursor on the first row stays there when rows are added before it."""
        super().__init__(columns, empty=empty, zebra=zebra, id=id, classes=classes)
        self._newest_first = newest_first
        self._kept: str | None = None
        """The row of the cursor before other columns were set, until there are rows again."""

    @property
    def cursor_key(self) -> str | None:
        """The key of the row under the cursor; None without rows."""
        rows = self._rows
        if not rows:
            return None
        return rows.keys[self._cursor] if isinstance(rows, LazyRows) else rows[self._cursor].key

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Set other columns; the rows are removed, since their cells belong to the old ones.

        The cursor is on its row again when that is among the next rows.
        """
        self._kept = self.cursor_key or self._kept
        self._columns = tuple(columns)
        self._widest = [0] * len(self._columns)
        self.set_rows(())
        self._lay_out()

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show these rows. Unchanged ones are not painted again."""
        before, cursor_key, index_before = self._rows, self.cursor_key, self._index
        if isinstance(rows, LazyRows):
            keys = rows.keys
        else:
            rows = tuple(rows)
            if rows == before:
                return
            keys = [row.key for row in rows]
        was_visible = self._is_visible(self._cursor)
        self._rows = rows
        self._index = {key: i for i, key in enumerate(keys)}
        wanted = self._kept if cursor_key is None else cursor_key
        self._cursor = (
            self._index[wanted]
            if wanted in self._index and not (self._newest_first and self._cursor == 0)
            else max(0, min(self._cursor, len(rows) - 1))
        )
        if keys:
            self._kept = None
        lazy = isinstance(rows, LazyRows) or isinstance(before, LazyRows)
        compared = self._in_sight() if lazy else range(len(rows))
        old_count = len(before)
        changed = [i for i in compared if i < old_count and before[i] != rows[i]]
        fresh = [rows[i] for i in changed] + [rows[i] for i in compared if i >= old_count]
        if self._measure(fresh):
            self._lay_out()
        elif not before or not rows:
            self.refresh()
        else:
            self._refresh_changes(before, changed)
        if len(rows) != len(before):
            self._set_height()
        old_index = index_before.get(cursor_key) if cursor_key is not None else None
        if old_index != self._cursor:
            self._refresh_row(self._cursor)
            if old_index is not None:
                self._refresh_row(old_index)
            if was_visible:
                self._show_cursor()
        if self.cursor_key is not None and self.cursor_key != cursor_key:
            self.post_message(self.Highlighted(self, self.cursor_key))

    def forget(self) -> None:
        """Remove all rows, with the cursor on the first: another cluster is shown."""
        self._cursor, self._kept = 0, None
        self.set_rows(())
        self.scroll_to(y=0, animate=False, force=True)

    def move_to(self, key: str) -> bool:
        """Move the cursor to that row; False without such a row."""
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

    async def on_key(self, event: events.Key) -> None:
        """Act on its own keys at once: Textual first passes a key through all parents."""
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                paint_now(self)
                return

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)  # without the border
        if at is None:
            return
        if at.y < HEADER_LINES:
            titled = [place for place in self._places if place.x <= at.x and place.column.title]
            if titled:
                self.post_message(self.HeaderClicked(self, titled[-1].column.key))
            return
        row = at.y - HEADER_LINES + self.scroll_offset.y
        if row >= len(self._rows):
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

    def _move(self, index: int) -> None:
        index = max(0, min(index, len(self._rows) - 1))
        if index == self._cursor or not self._rows:
            self._show_cursor()
            return
        self._refresh_row(self._cursor)
        self._cursor = index
        self._refresh_row(index)
        self._show_cursor()
        self.post_message(self.Highlighted(self, self.cursor_key or ""))

    def _show_cursor(self) -> None:
        top = self.scroll_offset.y
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False, force=True)
        elif self._page and self._cursor >= top + self._page:
            self.scroll_to(y=self._cursor - self._page + 1, animate=False, force=True)
