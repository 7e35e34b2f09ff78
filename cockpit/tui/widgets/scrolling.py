"""What scrolls: its keys, its height and its scrollbar, without painting all of it again."""

from __future__ import annotations

import math
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.dom import DOMNode
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.widget import Widget


class ScrollKeys(DOMNode):
    """A screen whose only VerticalScroll these keys move, wherever the focus is."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "scroll(1)", "Down"),
        Binding("k,up", "scroll(-1)", "Up"),
        Binding("pagedown,space", "page(1)", "A page down"),
        Binding("pageup,b", "page(-1)", "A page up"),
        Binding("g,home", "end(False)", "Top"),
        Binding("G,end", "end(True)", "Bottom"),
    ]

    def action_scroll(self, lines: int = 1) -> None:
        """By default down, as for a click on the key in a footer."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_page(self, by: int) -> None:
        box = self.query_one(VerticalScroll)
        box.scroll_relative(y=by * max(1, box.size.height - 1), animate=False)

    def action_end(self, bottom: bool) -> None:
        box = self.query_one(VerticalScroll)
        (box.scroll_end if bottom else box.scroll_home)(animate=False)


def set_virtual_height(view: ScrollView, height: int) -> None:
    """Set the number of lines.

    Assigning `virtual_size` lays out the screen and repaints the widget (its reactive is declared
    so). While the visibility of the scrollbar does not change, updating the scrollbar is enough.
    """
    size = Size(view.scrollable_size.width, height)
    if size == view.virtual_size:
        return
    if view.size and (height > view.size.height) == view.show_vertical_scrollbar:
        view.set_reactive(Widget.virtual_size, size)
        if view.show_vertical_scrollbar:
            view.vertical_scrollbar.window_virtual_size = height
        if view.scroll_y > view.max_scroll_y:
            view.scroll_to(y=view.max_scroll_y, animate=False, force=True)
    else:
        view.virtual_size = size


def scroll_thumb(view: ScrollView, y: float) -> None:
    """Move the thumb of the scrollbar to line `y`, in steps that can be seen.

    It is drawn in eighths of a cell. Each new position draws all of the scrollbar again, which
    takes half as long as drawing a table, and most lines of a long one move it by less.
    """
    bar = view.vertical_scrollbar
    cells, lines = bar.size.height, bar.window_virtual_size
    hidden = lines - bar.window_size
    if hidden > 0 and cells:
        thumb_cells = max(1.0, bar.window_size * cells / lines)
        eighths_a_line = 8 * (cells - thumb_cells) / hidden
        if 0 < eighths_a_line < 1:
            y = math.ceil(8 * math.floor(y * eighths_a_line) / eighths_a_line) / 8
    bar.position = y
