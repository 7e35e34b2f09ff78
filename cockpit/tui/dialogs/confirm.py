"""The confirmation before a change: the plan with its targets. The default answer is No."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import Key
from textual.widgets import Button, Input, Static

from cockpit.tui.dialogs.dialog import Dialog


class Confirm(Dialog[bool]):
    """Returns True for yes. With `typed`, yes requires that text.

    `again` is the key that opened the dialog; pressing it a second time is a yes.
    """

    DEFAULT_CSS = """
    Confirm > VerticalScroll { width: 72; border: round $warning; border-title-color: $warning; }
    Confirm .line { margin: 1 0 0 0; }
    Confirm Input { margin: 1 0 0 0; }
    Confirm Horizontal { height: 1; margin: 1 0; align-horizontal: right; }
    Confirm Button { margin: 0 0 0 2; border: none !important; }
    Confirm.-tiny .line { margin: 0; }
    Confirm.-tiny Horizontal { dock: bottom; margin: 0; }
    Confirm.-tiny Button { min-width: 4; margin: 0 0 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,Y", "answer(True)", "Yes"),
        Binding("n,N,escape", "answer(False)", "No"),
        Binding("q", "answer(False)", "No, or yes where it asked"),
        Binding("left,right,h,l", "other", "The other answer"),
        Binding("down,j", "scroll_text(1)", "Down", show=False),
        Binding("up,k", "scroll_text(-1)", "Up", show=False),
    ]

    def __init__(
        self, question: str, lines: Sequence[str], yes: str, *, typed: str = "", again: str = ""
    ) -> None:
        super().__init__()
        self.question, self.lines, self.yes = question, lines, yes
        self.typed, self.again = typed, again

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False) as box:
            box.border_title = self.question
            for line in self.lines:
                yield Static(line, classes="line", markup=False)
            if self.typed:
                yield Static(f"Type {self.typed} to confirm.", classes="line", markup=False)
                yield Input(placeholder=self.typed, compact=True)
            with Horizontal():
                no = "No (n)" if not self.typed else "No (esc)"
                yield Button(no, id="no", compact=True, variant="primary")
                keys = f"y {self.again}".strip()
                label = f"{self.yes} ({keys})" if not self.typed else self.yes
                yes = Button(label, id="yes", compact=True, variant="error")
                yes.disabled = bool(self.typed)
                yield yes

    def on_mount(self) -> None:
        self.app.clear_notifications()  # they would lie over the question
        (self.query_one(Input) if self.typed else self.query_one("#no")).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one("#yes", Button).disabled = event.value != self.typed

    def on_input_submitted(self) -> None:
        if not self.query_one("#yes", Button).disabled:
            self.dismiss(True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def on_key(self, event: Key) -> None:
        if self.again and self.again in (event.key, event.character):
            event.stop()
            self.action_answer(True)

    def action_answer(self, yes: bool) -> None:
        if not yes or not self.typed:
            self.dismiss(yes)

    def action_scroll_text(self, by: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)

    def action_other(self) -> None:
        self.focus_next(Button)
