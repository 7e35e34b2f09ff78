"""The page of one thing over the main screen: status above it, its keys below."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

from cockpit.tui.app_base import AppBase
from cockpit.tui.dialogs.help import key_lines
from cockpit.tui.dialogs.reading import Reading
from cockpit.tui.keys import TITLES, Key
from cockpit.tui.main.current_view import Viewing
from cockpit.tui.main.frame import DrillLine, KeyBar, StatusLine
from cockpit.tui.main.titles import entitle
from cockpit.tui.terminal.compositor import FrontCompositor
from cockpit.tui.view_state import HEIGHTS, WIDTHS, ViewState


class DetailScreen(Screen[None]):
    NAME: ClassVar[str] = ""
    """Its content, in the title of its help."""
    KEYS: ClassVar[tuple[Key, ...]] = ()
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("question_mark", "help", "The keys of this page"),
        Binding("w", "save", "Save the UI"),
        Binding("q", "quit", "Leave"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._compositor = FrontCompositor()

    @property
    def cockpit(self) -> AppBase:
        app = self.app
        assert isinstance(app, AppBase)
        return app

    def compose(self) -> ComposeResult:
        yield StatusLine()
        yield DrillLine()
        yield from self.compose_page()
        yield KeyBar()

    def compose_page(self) -> ComposeResult:
        raise NotImplementedError

    def on_mount(self) -> None:
        self.call_after_refresh(self.cockpit.redraw)

    def on_resize(self) -> None:
        self.cockpit.redraw()

    def redraw(self, state: ViewState) -> None:
        self.query_one(StatusLine).draw(state)
        self.query_one(DrillLine).draw(state)
        refused = frozenset(key.id for key in self.KEYS if self.cockpit.refusal(key.verb))
        self.query_one(KeyBar).draw(self.KEYS, refused)

    def entitle(self, widget: Widget, title: str) -> None:
        """Title the page with its path: the view below it, which a click opens again, and `title`.

        In a few lines, `title` only.
        """
        below = self.app.screen_stack[0]
        if isinstance(below, Viewing) and not self.has_class("-tiny"):
            path = "[$accent @click=screen.back]$view[/] › $title"
            view = TITLES[below.view_name]
            entitle(widget, Content.from_markup(path, view=view, title=title))
        else:
            entitle(widget, title)

    def action_back(self) -> None:
        self.dismiss(None)

    def action_help(self) -> None:
        keys = partial(key_lines, "This page", self.KEYS)
        self.app.push_screen(Reading(f"Keys · {self.NAME}", keys))

    def action_save(self) -> None:
        self.cockpit.save_screen()

    async def action_quit(self) -> None:
        await self.cockpit.action_quit()
