"""The frame that all dialogs have in common."""

from __future__ import annotations

from typing import TypeVar

from textual.screen import ModalScreen

T = TypeVar("T")


class Dialog(ModalScreen[T]):
    """A box with a title in the middle of the screen; dismissed with the answer."""

    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog > Vertical, Dialog > VerticalScroll {
        max-width: 100%; height: auto; max-height: 100%; padding: 0 2; background: $panel;
        border: round $primary; border-title-color: $primary; border-title-style: bold;
        border-subtitle-color: $text-muted;
    }
    """
