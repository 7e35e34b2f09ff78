"""A text to read and put away: help, an object as YAML."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import ClassVar, TypeAlias

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from cockpit.format import plural
from cockpit.model.text import clean, one_line
from cockpit.tui.dialogs.dialog import Dialog
from cockpit.tui.main.titles import entitle
from cockpit.tui.widgets.scrolling import ScrollKeys

JSON = "o"
"""The key that copies the shown YAML as JSON, where the text is YAML."""
Laid: TypeAlias = Callable[[int], Content]
"""Lays a text out for a width in cells."""


class Reading(Dialog[None], ScrollKeys):
    DEFAULT_CSS = """
    Reading > VerticalScroll { width: 90%; max-width: 110; max-height: 90%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,y,d,enter", "dismiss(None)", "Close"),
        Binding("c", "copy('c')", "Copy the text to the clipboard of the terminal"),
        Binding("n", "copy('n')", "Copy the name"),
        Binding("m", "copy('m')", "Copy the command"),
        Binding(JSON, f"copy('{JSON}')", "Copy as JSON"),
    ]

    def __init__(
        self, title: str, text: str | Content | Laid, copies: Mapping[str, tuple[str, str]] = {}
    ) -> None:
        """`copies`: more to copy, by key (`n`, `m`, `o`): what it is called, and its text.

        JSON without a text is made of the YAML that is shown.
        """
        super().__init__()
        self.copies = copies
        self.heading = one_line(title)
        self.text: str | Content | Laid = _clean(text) if isinstance(text, str) else text

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            entitle(box, self.heading)
            more = "".join(f" · {key} {label}" for key, (label, _) in self.copies.items())
            copy = f"copy: c text{more} · esc closes" if more else "c copies, esc closes"
            box.border_subtitle = "esc closes" if callable(self.text) else copy
            yield _Text()

    def on_mount(self) -> None:
        # It may have been filled after it was composed.
        self.query_one(_Text).show(self.text)

    def fill(self, text: str | Content) -> None:
        """Show this in place of what was there."""
        self.text = _clean(text) if isinstance(text, str) else text
        for place in self.query(_Text):  # none before it is composed, or once it was closed
            place.show(self.text)

    def action_copy(self, key: str) -> None:
        """By OSC 52, which also reaches the terminal at the other end of an SSH connection."""
        if callable(self.text):
            return  # the keys of a view
        shown = self.text if isinstance(self.text, str) else self.text.plain
        label, text = ("text", shown) if key == "c" else self.copies.get(key, ("", ""))
        if not label:
            return
        text = text or (_json(shown) if key == JSON else "")
        self.app.copy_to_clipboard(text)
        lines = plural(len(text.splitlines()), "line")
        what = one_line(text) if lines == "1 line" else f"{lines} of {label}"
        self.app.notify(f"Copied {what}, if the terminal allows it (OSC 52).", markup=False)


class _Text(Static):
    """Laid out again when its width changes, if the text supports it."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._shown: str | Content | Laid = ""
        self._laid_for = 0

    def show(self, text: str | Content | Laid) -> None:
        self._shown, self._laid_for = text, 0
        if callable(text):
            self._lay_out(self.size.width or self.app.size.width)
        else:
            self.update(text)

    def on_resize(self, event: events.Resize) -> None:
        self._lay_out(event.size.width)

    def _lay_out(self, width: int) -> None:
        if callable(self._shown) and width != self._laid_for:
            self._laid_for = width
            self.update(self._shown(width))


def _json(text: str) -> str:
    """The YAML as JSON; the text itself if it is none, such as an error."""
    from cockpit.model.decoding import limited_yaml

    try:
        return json.dumps(limited_yaml.loads(text), indent=2, ensure_ascii=False)
    except (TypeError, ValueError):
        return text


def _clean(text: str) -> str:
    return "\n".join(clean(line) for line in text.split("\n"))
