"""An app with one widget, under a theme of cockpit, which records its messages."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.message import Message
from textual.widget import Widget

from cockpit.config.theme_files import theme_named
from cockpit.tui.theme import textual_theme
from cockpit.tui.widgets.table.table import LineTable


class Stage(App[None]):
    def __init__(
        self,
        *widgets: Widget,
        theme: str = "cockpit-dark",
        then: Callable[[], object] | None = None,
    ) -> None:
        super().__init__()
        self.shown = widgets
        self.chosen = theme
        self.then = then
        self.said: list[Message] = []

    def compose(self) -> ComposeResult:
        yield from self.shown

    def on_mount(self) -> None:
        self.register_theme(textual_theme(theme_named(self.chosen)))
        self.theme = self.chosen
        if self.then is not None:
            self.call_after_refresh(self.then)

    def on_line_table_highlighted(self, message: LineTable.Highlighted) -> None:
        self.said.append(message)

    def on_line_table_selected(self, message: LineTable.Selected) -> None:
        self.said.append(message)

    def on_line_table_header_clicked(self, message: LineTable.HeaderClicked) -> None:
        self.said.append(message)


def lines(widget: Widget) -> list[str]:
    """The content of the widget, line by line, without trailing blanks."""
    return [widget.render_line(y).text.rstrip() for y in range(widget.size.height)]


def watch_repaints(widget: Widget) -> list[Region]:
    """From now on, the regions that the widget repaints; no region is all of it."""
    seen: list[Region] = []
    mark = widget._set_dirty

    def note(*regions: Region) -> None:
        seen.extend(regions or (widget.size.region,))
        mark(*regions)

    widget.__dict__["_set_dirty"] = note
    return seen
