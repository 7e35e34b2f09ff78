"""The base class of the views."""

from __future__ import annotations

import logging
from typing import ClassVar

from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Static

from cockpit.model.text import one_line
from cockpit.tui.app_base import AppBase
from cockpit.tui.keys import Key
from cockpit.tui.view_state import Target, ViewState

log = logging.getLogger(__name__)


class View(Vertical):
    """A view is drawn from a `ViewState` and returns what is selected in it."""

    NAME: ClassVar[str] = ""
    DEFAULT_CSS = """
    View > #fault { dock: top; height: auto; padding: 0 1; color: $error; background: $panel; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.pane: Widget | None = None
        """The part that has, or had last, the focus."""
        self._fault: Static | None = None
        self._shown_fault = ""

    @property
    def cockpit(self) -> AppBase:
        app = self.app
        assert isinstance(app, AppBase)
        return app

    def redraw(self, state: ViewState) -> None:
        raise NotImplementedError

    def draw(self, state: ViewState) -> None:
        """`redraw`; a defect of ours is shown in the view, and the application keeps running."""
        try:
            self.redraw(state)
        except Exception as error:
            text = one_line(f"{type(error).__name__}: {error}")
            if text != self._shown_fault:
                log.exception("the view %s could not be drawn", self.NAME)
            self._show_fault(text)
        else:
            self._show_fault("")

    def _show_fault(self, text: str) -> None:
        if text == self._shown_fault:
            return
        self._shown_fault = text
        if self._fault is None:
            self._fault = Static(id="fault", markup=False)
            self.mount(self._fault)
        self._fault.display = bool(text)
        self._fault.update(
            f"A bug in cockpit: part of this view could not be drawn ({text}). "
            "The other views, the data and the run continue."
        )

    def on_mount(self) -> None:
        # Not by `DescendantFocus`: a busy widget posts it late, so that the event of the widget
        # that has lost the focus can be the last to arrive.
        self.watch(self.screen, "focused", self._note_focus, init=False)

    def _note_focus(self, focused: Widget | None) -> None:
        if focused is not None and self in focused.ancestors:
            self.pane = focused

    def take_focus(self) -> None:
        """Back to where it was; called when the view is shown."""
        panes = self._panes()
        if panes:
            (self.pane if self.pane in panes else panes[0]).focus(scroll_visible=False)

    def refocus(self) -> None:
        """Focus a pane if none has the focus: a pane was hidden, or is shown again."""
        if self.display and self.app.screen is self.screen and self.screen.focused is None:
            self.take_focus()

    def next_pane(self) -> None:
        """The focus to the next table or log of the view."""
        panes = self._panes()
        if panes:
            at = panes.index(self.pane) if self.pane in panes else -1
            panes[(at + 1) % len(panes)].focus(scroll_visible=False)

    def _panes(self) -> list[Widget]:
        """The visible widgets that can have the focus."""
        return [widget for widget in self.screen.focus_chain if self in widget.ancestors]

    def target(self) -> Target | None:
        """The selected object."""
        return None

    def usable(self, keys: tuple[Key, ...]) -> tuple[Key, ...]:
        """Those of the view's keys that do something now."""
        return keys

    def to_start(self) -> None:
        """The user has chosen the view, by its key, its title or a command."""

    def back(self) -> bool:
        """Leave or close what is open in the view; whether there was something."""
        return False

    def filter(self, text: str) -> None:
        """Show only what holds the text; an empty one shows all."""

    def sort_next(self) -> None:
        """Sort by the next column; after the last, unsorted."""

    def reverse(self) -> None:
        """The other way round."""

    def forget(self) -> None:
        """Another cluster is shown: drop everything of the previous one."""
