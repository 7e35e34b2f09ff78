"""The line at the bottom that takes a command, a filter, or tags and a note."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input

COMMAND, FILTER, NOTE = ":", "/", "#"
_PLACEHOLDERS = {
    COMMAND: "a command; tab completes",
    FILTER: "only lines with …",
    NOTE: "#tag #tag and a note; enter saves, esc cancels",
}


class _Completions(Suggester):
    def __init__(self, complete: Callable[[str], list[str]]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._complete = complete

    async def get_suggestion(self, value: str) -> str | None:
        return next((line for line in self._complete(value) if line != value), None)


class Prompt(Input):
    """Hidden until `ask`. A filter applies while it is typed; the others on Enter."""

    DEFAULT_CSS = """
    Prompt { display: none; height: 1; border: none; padding: 0 1; background: $surface; }
    Prompt:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back", priority=True),
        Binding("up", "history(-1)", "The command before"),
        Binding("down", "history(1)", "The next command"),
        Binding("tab", "complete", "Complete", priority=True),
    ]

    class Entered(Message):
        """A command line, the current filter, or tags and a note."""

        def __init__(self, mode: str, line: str) -> None:
            super().__init__()
            self.mode, self.line = mode, line

    class Closed(Message):
        """The prompt is hidden again."""

    def __init__(
        self, complete: Callable[[str], list[str]], history: Callable[[], Sequence[str]]
    ) -> None:
        """`history`: the earlier commands, the newest last."""
        super().__init__(compact=True, select_on_focus=False)
        self.mode = COMMAND
        self._completions = complete
        self._complete = _Completions(complete)
        self._read_history = history
        self._history: Sequence[str] = ()
        self._at = 0

    def ask(self, mode: str, line: str = "") -> None:
        self.mode, self.display = mode, True
        self.placeholder = _PLACEHOLDERS[mode]
        self.suggester = self._complete if mode == COMMAND else None
        self.value = line
        self.cursor_position = len(line)
        self._history = self._read_history() if mode == COMMAND else ()
        self._at = len(self._history)
        self.screen.set_focus(self)  # at once: `focus` lets the keys that were typed go first

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.mode == FILTER and self.display:
            self.post_message(self.Entered(FILTER, event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        line = event.value.strip()
        self._close()
        if self.mode == COMMAND and line:
            self.post_message(self.Entered(COMMAND, line))
        elif self.mode == NOTE:
            self.post_message(self.Entered(NOTE, line))

    def on_blur(self, event: events.Blur) -> None:
        if self.display:
            self._close()

    def action_leave(self) -> None:
        if self.mode == FILTER:
            self.post_message(self.Entered(FILTER, ""))
        self._close()

    def action_history(self, by: int) -> None:
        if self._history:
            self._at = min(max(self._at + by, 0), len(self._history))
            self.value = self._history[self._at] if self._at < len(self._history) else ""
            self.cursor_position = len(self.value)

    def action_complete(self) -> None:
        """Take the suggestion; without one, the best line that has the typed letters in order."""
        self.action_cursor_right()
        found = self._completions(self.value) if self.mode == COMMAND and self.value else []
        if found and not any(line.startswith(self.value) for line in found):
            self.value = found[0]
            self.cursor_position = len(self.value)

    def _close(self) -> None:
        self.display = False
        self.post_message(self.Closed())
