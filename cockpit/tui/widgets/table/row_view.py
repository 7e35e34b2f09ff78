"""Rows under a fixed header; only changed cells are painted again.

Textual's DataTable repaints its complete region for one changed cell (26 KB at 200×50); this one
marks only the changed cells as dirty (about 300 bytes).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.cache import LRUCache
from textual.geometry import Region
from textual.scroll_view import ScrollView
from textual.strip import Strip

from cockpit.tui.terminal.cells import fit
from cockpit.tui.widgets.line_widget import LineWidget
from cockpit.tui.widgets.scrolling import scroll_thumb, set_virtual_height
from cockpit.tui.widgets.table.columns import Column, Place, lay_out
from cockpit.tui.widgets.table.lazy_rows import LazyRows
from cockpit.tui.widgets.table.row_lines import Row, changed_regions, header_strip, row_strip, widen

HEADER_LINES = 1
_DECORATIONS = (
    *("hatch", "text_opacity", "tint"),
    *("outline_top", "outline_right", "outline_bottom", "outline_left"),
)
"""Rules with which Textual changes a widget's lines, besides its border and padding."""


class RowLines(LineWidget, ScrollView):
    """How rows are measured, laid out and painted; which of them is chosen is `LineTable`'s."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "line-table--header",
        "line-table--zebra",
        "line-table--cursor",
        "line-table--empty",
    }

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        empty: str = "",
        zebra: bool = False,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._columns = tuple(columns)
        self._empty, self._hint = empty, ""
        self._zebra = zebra
        self._rows: Sequence[Row] = ()
        self._index: dict[str, int] = {}
        self._cursor = 0
        self.chosen: tuple[str, ...] = ()
        """The keys of the columns that the user wants, in order; empty: those with room."""
        self._widest = [0] * len(self._columns)
        self._places: tuple[Place, ...] = ()
        self._room = -1
        self._sort: tuple[str, bool] = ("", False)
        self._strips: LRUCache[tuple[Row, str], Strip] = LRUCache(1024)
        self._styles_by_name: dict[str, Style] = {}

    @property
    def rows(self) -> Sequence[Row]:
        return self._rows

    @property
    def columns(self) -> tuple[Column, ...]:
        return self._columns

    @property
    def sort_key(self) -> str:
        """The column whose header carries the sort marker."""
        return self._sort[0]

    @property
    def reverse(self) -> bool:
        return self._sort[1]

    @property
    def visible_columns(self) -> tuple[str, ...]:
        """The keys of the columns that there is room for.

        A layout sets the width before the table handles its `Resize`: a view that is drawn between
        the two sees the columns of the new width.
        """
        self._follow_width()
        return tuple(place.column.key for place in self._places)

    def choose(self, keys: Sequence[str]) -> None:
        """Show these columns, in this order; none: all for which there is room."""
        if tuple(keys) != self.chosen:
            self.chosen = tuple(keys)
            self._lay_out()

    @property
    def empty(self) -> str:
        """The text without rows."""
        return self._hint or self._empty

    def set_empty(self, text: str) -> None:
        """The text when there are no rows."""
        self._set_texts(text, self._hint)

    def set_hint(self, text: str) -> None:
        """The text without rows while a filter is set; empty: that of `set_empty`."""
        self._set_texts(self._empty, text)

    def _set_texts(self, empty: str, hint: str) -> None:
        before = self.empty
        self._empty, self._hint = empty, hint
        if self.empty != before and not self._rows:
            self.refresh()

    def set_sort(self, key: str, reverse: bool = False) -> None:
        """Mark the column that the caller has sorted by."""
        if (key, reverse) != self._sort:
            self._sort = (key, reverse)
            self._refresh_line(0)

    def on_resize(self) -> None:
        self._widest = [0] * len(self._columns)
        self._measure(self._to_measure())
        self._lay_out()
        self._set_height()

    def notify_style_update(self) -> None:
        self._styles_by_name.clear()
        self._strips.clear()
        super().notify_style_update()

    def render_lines(self, crop: Region) -> list[Strip]:
        """As Textual's, which makes a new strip of each line that has changed.

        After a scroll those are all lines, and a new strip is filtered, divided and converted to
        escape sequences again: that took two thirds of the time of a scrolled table.
        """
        above, *others = self.styles.gutter
        width = self.region.width
        decorated = self.styles.has_any_rules(*_DECORATIONS) or self.opacity != 1.0
        if decorated or any(others) or crop.column_span != (0, width):
            return super().render_lines(crop)
        first = max(crop.y, above)
        title = Region(0, crop.y, width, first - crop.y)
        strips = super().render_lines(title) if title else []
        _, background = self.background_colors
        base, filters = self._component(""), self.get_line_filters()
        room, top = self.scrollable_size.width, self.scroll_offset.y
        for y in range(first, crop.bottom):
            strip = self._strip(y - above, room, top).adjust_cell_length(width, base)
            for each in filters:
                strip = strip.apply_filter(each, background)
            strips.append(strip)
        return strips

    def render_line(self, y: int) -> Strip:
        return self._strip(y, self.scrollable_size.width, self.scroll_offset.y)

    def _strip(self, y: int, width: int, top: int) -> Strip:
        """Line `y`, of that width, while the first visible row is `top`."""
        self._follow_width()  # the scrollbar's visibility changes it without a resize
        if y < HEADER_LINES:
            return self._header(width)
        if not self._rows:
            return self._empty_line(y - HEADER_LINES, width)
        i = y - HEADER_LINES + top
        if i >= len(self._rows):
            return Strip.blank(width, self._component(""))
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
        base = self._component(kind)
        # In 16 colours the cursor is a block of one colour, on which others cannot be read.
        plain = kind == "cursor" and self.app.native_ansi_color
        muted = not (kind == "cursor" and self.has_focus)
        palette = None if plain else self.palette
        return row_strip(row, self._places, width, base, palette, muted=muted)

    def _header(self, width: int) -> Strip:
        style = self._component("header")
        marked = style + self.palette.style("accent")
        return header_strip(self._places, width, style, marked, *self._sort)

    def _empty_line(self, y: int, width: int) -> Strip:
        base = self._component("")
        lines = wrap(self.empty, max(1, width - 3))
        at = y - min(1, max(0, self._page - len(lines)))
        if not 0 <= at < len(lines):
            return Strip.blank(width, base)
        style = base + self._component("empty") + self.palette.style("muted")
        return Strip([Segment(fit(f"  {lines[at]}", width), style)], width)

    def _in_sight(self, top: int | None = None) -> range:
        """The visible rows, or those that are visible while `top` is the first one."""
        top = self.scroll_offset.y if top is None else top
        return range(min(top, len(self._rows)), min(top + max(1, self._page), len(self._rows)))

    def _to_measure(self) -> Iterable[Row]:
        """All rows, or the visible ones if they are created on demand."""
        rows = self._rows
        return [rows[i] for i in self._in_sight()] if isinstance(rows, LazyRows) else rows

    def _measure(self, rows: Iterable[Row]) -> bool:
        """Widen the columns to these rows. Return whether one became wider.

        Columns do not become narrower, so that the layout is stable.
        """
        before = list(self._widest)
        free = [i for i, column in enumerate(self._columns) if column.width is None]
        widen(self._widest, free, rows)
        if isinstance(self._rows, LazyRows):
            for i, cells in self._rows.widest.items():
                self._widest[i] = max(self._widest[i], cells)
        return self._widest != before

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """As in ScrollView; the scrollbar moves in visible steps."""
        if self.show_vertical_scrollbar:
            scroll_thumb(self, new_value)
        if round(old_value) != round(new_value):
            # Not the header, and not the scrollbar, which paints itself.
            self.refresh(Region(0, HEADER_LINES, self.scrollable_size.width, self._page))
        if isinstance(self._rows, LazyRows):
            was_visible = self._in_sight(round(old_value))
            fresh = (self._rows[i] for i in self._in_sight() if i not in was_visible)
            if self._measure(fresh):
                self._lay_out()

    def _follow_width(self) -> None:
        if self.scrollable_size.width != self._room:
            self._place()

    def _place(self) -> None:
        self._room = self.scrollable_size.width
        self._places = lay_out(self._columns, self._widest, self._room, self.chosen)
        self._strips.clear()

    def _lay_out(self) -> None:
        self._place()
        self.refresh()

    def _set_height(self) -> None:
        set_virtual_height(self, len(self._rows) + HEADER_LINES)

    def _refresh_changes(self, before: Sequence[Row], changed: Sequence[int]) -> None:
        rows, top, width = self._rows, self.scroll_offset.y, self.scrollable_size.width
        bottom = top + self._page
        dirty: list[Region] = []
        for i in changed:
            if top <= i < bottom:
                y = i - top + HEADER_LINES
                dirty += changed_regions(before[i], rows[i], self._places, y, width)
        for i in range(*sorted((len(before), len(rows)))):
            if top <= i < bottom:
                dirty.append(Region(0, i - top + HEADER_LINES, width, 1))
        if dirty:
            self.refresh(*dirty)

    def _is_visible(self, index: int) -> bool:
        return 0 <= index - self.scroll_offset.y < max(1, self._page)

    def _refresh_row(self, index: int) -> None:
        if self._is_visible(index):
            self._refresh_line(index - self.scroll_offset.y + HEADER_LINES)

    def _refresh_line(self, y: int) -> None:
        self.refresh(Region(0, y, self.scrollable_size.width, 1))

    def _component(self, name: str) -> Style:
        """The style of that part; empty: of a line without one."""
        found = self._styles_by_name.get(name)
        if found is None:
            part = f"line-table--{name}"
            found = self.get_component_rich_style(part) if name else self.rich_style
            self._styles_by_name[name] = found
        return found
