"""Titles on borders."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget


def entitle(widget: Widget, title: str) -> None:
    """Set it where it differs: Textual paints the whole widget again for every title it is given,
    and would read markup in a name from the cluster."""
    content = Content(title)
    if widget.border_title != content.markup:
        widget.border_title = content
