"""The settings of a job to be launched, as a list by group."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from cockpit.launch.job import JobSetting
from cockpit.tui.commands.launch_form import Head, LaunchForm, Line
from cockpit.tui.terminal.cells import fit

LEAST_CELLS, VALUE_CELLS = 8, 16
"""The maximum length of an unabbreviated value, if all are short and in general."""


class SettingsList(OptionList):
    """Show the form's settings that match `search`, and change those that need no text input."""

    DEFAULT_CSS = """
    SettingsList { height: 1fr; margin: 1 0 0 0; }
    SettingsList:focus > .option-list--option-highlighted {
        color: $foreground; background: $block-cursor-blurred-background; text-style: bold;
    }
    SettingsList:ansi:focus > .option-list--option-highlighted { text-style: bold underline; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Down"),
        Binding("k", "cursor_up", "Up"),
        Binding("g", "first", "Top"),
        Binding("G", "last", "Bottom"),
        Binding("space", "select", "Change"),
        Binding("right,l", "another(1)", "The next choice; open a group"),
        Binding("left,h", "another(-1)", "The previous choice; close a group"),
        Binding("backspace,delete", "default", "As it is by default"),
        Binding("slash", "screen.find", "Find"),
    ]

    class Changed(Message):
        """A value of the form is another one."""

    class Typed(Message):
        """A character of a number, typed without asking for it to be changed first."""

        def __init__(self, character: str) -> None:
            super().__init__()
            self.character = character

    def __init__(self, form: LaunchForm) -> None:
        super().__init__(id="settings", compact=True, markup=False)
        self.form = form
        self.search = ""
        self.value_cells = VALUE_CELLS

    def on_resize(self) -> None:
        self.fill(self.search)

    def on_key(self, event: events.Key) -> None:
        line, character = self.line, event.character or ""
        if line is not None and line.setting.type in ("int", "float") and character in _NUMBER:
            event.stop()
            self.post_message(self.Typed(character))

    @property
    def line(self) -> Line | None:
        """The setting that is highlighted."""
        shown = self._shown()
        return shown if isinstance(shown, Line) else None

    def fill(self, message: str) -> None:
        """Fill again: the cursor stays, or moves to the match of the search."""
        before = self.highlighted_option
        at = before.id or "" if before is not None else ""
        if message != self.search:
            at = self.form.best_match(message) if message else at
            self.search = message
        lines = self.form.lines(message)
        texts = [(line.text, *line.setting.choices) for line in lines if isinstance(line, Line)]
        longest = max((len(text) for each in texts for text in each), default=0)
        self.value_cells = min(max(longest, LEAST_CELLS), VALUE_CELLS) + 2
        self.set_options(Option(self._prompt(line), id=_id(line)) for line in lines)
        if lines:
            self.go_to(at)
        else:
            said = f"No setting has {message!r}." if message else "It has no settings."
            self.add_option(Option(said, disabled=True))

    def go_to(self, name: str) -> None:
        """To the setting, or group, of that name; to the first setting when it is not shown."""
        names = [option.id for option in self.options]
        self.highlighted = names.index(name) if name in names else min(1, len(names) - 1)

    def put(self, setting: JobSetting, text: str) -> None:
        self.form.put(setting.name, text)
        for line in self.form.lines(self.search):
            if isinstance(line, Head) or line.setting.name == setting.name:
                self.replace_option_prompt(_id(line), self._prompt(line))
        self.post_message(self.Changed())

    def toggle(self) -> None:
        """Open or close the group that is highlighted."""
        if isinstance(head := self._shown(), Head):
            self.form.toggle(head.title)
            self.fill(self.search)

    def action_another(self, by: int) -> None:
        shown = self._shown()
        if isinstance(shown, Head) and shown.is_open is (by < 0):
            self.toggle()
        elif isinstance(shown, Line) and (text := shown.another(by)):
            self.put(shown.setting, text)

    def action_default(self) -> None:
        if (line := self.line) is not None:
            self.put(line.setting, line.setting.default_text)

    def _shown(self) -> Head | Line | None:
        option = self.highlighted_option
        lines = self.form.lines(self.search) if option is not None else []
        return next((line for line in lines if option is not None and _id(line) == option.id), None)

    def _prompt(self, line: Head | Line) -> Content:
        if isinstance(line, Head):
            some = f", {line.changed} changed" if line.changed else ""
            count = f"  {line.count} setting{'s'[: line.count != 1]}{some}"
            sign = "▼" if line.is_open else "▶"
            return Content.assemble(
                Content.styled(f"{sign} {line.title}", "bold"), Content.styled(count, "$muted")
            )
        name_cells = max(len(setting.name) for setting in self.form.job.settings) + 1
        # The mark shows changed values without a color.
        mark = "!" if line.complaint else "*" if line.is_changed else " "
        style = "$bad bold" if line.complaint else "$accent bold" if line.is_changed else ""
        room = self.scrollable_content_region.width - name_cells - self.value_cells - 4
        return Content.assemble(
            f"  {fit(line.setting.name, name_cells)}",
            Content.styled(fit(f"{mark} {line.text or '–'}", self.value_cells), style),
            "  ",
            Content.styled(fit(line.setting.help, room).rstrip(), "$muted"),
        )


_NUMBER = tuple("0123456789.-")


def _id(line: Head | Line) -> str:
    """Of its option: a group may be called as a setting is."""
    return f"group {line.title}" if isinstance(line, Head) else line.setting.name
