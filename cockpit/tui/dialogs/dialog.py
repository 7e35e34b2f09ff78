"""The frame that all dialogs have in common."""

from __future__ import annotations

from typing import TypeVar

from textual.screen import ModalScreen

from cockpit.tui.view_state import HEIGHTS

T = TypeVar("T")


class Dialog(ModalScreen[T]):
    """A box with a title in the middle of the screen; dismissed with the answer."""

    VERTICAL_BREAKPOINTS = HEIGHTS
    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog > Vertical, Dialog > VerticalScroll {
        max-width: 100%; height: auto; max-height: 100%; padding: 0 2; background: $panel;
        border: round $primary; border-title-color: $primary; border-title-style: bold;
        border-subtitle-color: $text-muted;
    }
    Dialog.-tiny > Vertical, Dialog.-tiny > VerticalScroll {
        width: 100%; height: 100%; max-height: 100%; margin: 0; padding: 0 1;
        border: none; border-top: solid $primary;
    }
    """
