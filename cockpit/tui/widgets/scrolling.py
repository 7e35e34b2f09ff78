"""The height of what scrolls, set without painting all of it again."""

from __future__ import annotations

from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.widget import Widget


def set_virtual_height(view: ScrollView, height: int) -> None:
    """Say how many lines there are.

    Assigning `virtual_size` lays the screen out and repaints the whole widget (its reactive is
    declared so). As long as the scrollbar neither comes nor goes, it is enough to tell it.
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
