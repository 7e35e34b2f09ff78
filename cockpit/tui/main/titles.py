"""Titles on borders."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget


def entitle(widget: Widget, title: str | Content) -> None:
    """Set the title if it differs.

    Textual repaints the widget for every title, and would parse markup in a name from the cluster.
    """
    content = Content(title) if isinstance(title, str) else title
    if widget.border_title != content.markup:
        widget.border_title = content
