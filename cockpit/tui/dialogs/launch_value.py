"""The full description of a setting, and its value while it is edited."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Input, Label, OptionList, Static

from cockpit.tui.commands.launch_form import Line

_TYPES = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}


class SettingValue(Vertical):
    """Below the list of settings: `explain` one, and `edit` it."""

    DEFAULT_CSS = """
    SettingValue { height: auto; min-height: 4; margin: 1 0 0 0; }
    SettingValue #help { height: auto; max-height: 4; color: $text-muted; }
    SettingValue #complaint { height: auto; color: $bad; }
    SettingValue Horizontal { height: 1; }
    SettingValue Label { width: auto; padding: 0 1 0 0; }
    SettingValue Input { width: 1fr; background: $surface; }
    SettingValue OptionList { height: auto; max-height: 5; }
    """

    class Typed(Message):
        """The current value, which may be invalid."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Over(Message):
        """Nothing is typed or chosen any more."""

    def __init__(self) -> None:
        super().__init__(id="detail")
        self.before = ""
        """The value that is being typed over."""

    def compose(self) -> ComposeResult:
        yield Static(id="help", markup=False)
        yield Static(id="complaint", markup=False)
        with Horizontal():
            yield Label(markup=False)
            yield Input(compact=True, id="value", select_on_focus=False)
        yield OptionList(id="words", compact=True, markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).cursor_blink = False
        self._show(typed=False, chosen=False)

    @property
    def is_typing(self) -> bool:
        return self.query_one(Horizontal).display

    @property
    def is_editing(self) -> bool:
        return self.is_typing or self.query_one(OptionList).display

    def explain(self, line: Line | None) -> None:
        text, complaint = "", ""
        if line is not None:
            one = line.setting
            kind = f"{_TYPES[one.type]}{', ' if one.range else ''}{one.range}"
            if one.choices:
                kind = f"one of {', '.join(one.choices)}"
            text = f"{one.name}: {one.help}\n{kind}; by default {one.default_text or 'empty'}"
            complaint = f"{line.text or 'Nothing'} {line.complaint}" if line.complaint else ""
        self.query_one("#help", Static).update(text)
        place = self.query_one("#complaint", Static)
        place.update(complaint)
        place.display = bool(complaint)

    def edit(self, line: Line) -> None:
        """Focus the input, or the choices if there are any."""
        self.before = line.text
        choices = line.setting.choices
        self._show(typed=not choices, chosen=bool(choices))
        if choices:
            text = self.query_one(OptionList)
            text.set_options(choices)
            text.highlighted = choices.index(line.text) if line.text in choices else 0
            text.focus()
        else:
            self.query_one(Label).update(line.setting.name)
            value = self.query_one(Input)
            with self.prevent(Input.Changed):
                value.value = line.text
            value.select_all()
            value.focus()

    def type(self, text: str) -> None:
        """As if it were typed: in place of what is selected."""
        value = self.query_one(Input)
        value.replace(text, *value.selection)

    def undo(self) -> None:
        """Keep the previous value."""
        self._end(self.before)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._end(event.value)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._end(str(event.option.prompt))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        if self.is_editing:
            self._show(typed=False, chosen=False)

    def _end(self, text: str) -> None:
        self.post_message(self.Typed(text))
        self._show(typed=False, chosen=False)
        self.post_message(self.Over())

    def _show(self, *, typed: bool, chosen: bool) -> None:
        self.query_one(Horizontal).display = typed
        self.query_one(OptionList).display = chosen
