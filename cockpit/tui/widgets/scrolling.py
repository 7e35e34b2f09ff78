"""The height of what scrolls, set without painting all of it again."""

from __future__ import annotations

from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.widget import Widget


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
