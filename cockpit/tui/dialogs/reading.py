"""A text to read and put away: help, an object as YAML."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static


class Reading(ModalScreen[None]):
    DEFAULT_CSS = """
    Reading { align: center middle; }
    Reading > VerticalScroll {
        width: 90%; max-width: 110; height: auto; max-height: 90%; padding: 0 2;
        background: $panel; border: round $primary; border-title-color: $primary;
        border-title-style: bold; border-subtitle-color: $text-muted;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,y,enter", "dismiss(None)", "Close"),
        Binding("j,down", "scroll(1)", "Down"),
        Binding("k,up", "scroll(-1)", "Up"),
        Binding("g,home", "end(False)", "Top"),
        Binding("G,end", "end(True)", "Bottom"),
    ]

    def __init__(self, title: str, text: str | Content) -> None:
        super().__init__()
        self.heading, self.text = title, text

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = self.heading
            box.border_subtitle = "esc closes"
            yield Static(self.text, markup=False)

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_end(self, bottom: bool) -> None:
        box = self.query_one(VerticalScroll)
        (box.scroll_end if bottom else box.scroll_home)(animate=False)
