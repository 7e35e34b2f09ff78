"""Choose a fault, its target and its hypothesis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Input, Label, OptionList, Static
from textual.widgets.option_list import Option

from cockpit.drills.faults.fault import Fault
from cockpit.model.error import CockpitError
from cockpit.tui.commands.drill_form import PRESETS, DrillForm, plan
from cockpit.tui.dialogs.dialog import Dialog
from cockpit.tui.terminal.cells import fit
from cockpit.tui.views.drills.catalog_rows import default_text

_FIELDS = (
    ("target", "target", "random, head, POD, rank:N"),
    ("count", "count", "number of targets"),
    ("seed", "seed", "repeats a random choice"),
    ("within", "recover within", "seconds to the first new step"),
    ("lost", "max steps lost", "steps that are trained again"),
    ("share", "max share", "of a group's pods; empty: a third"),
    ("hypothesis", "probes", "ctrl+r: presets"),
)
"""Of a `DrillForm`: the field, its label, its help."""
NAME_CELLS, OPTION_CELLS = 18, 68


class DrillDialog(Dialog[DrillForm | None]):
    """Returns a valid form; None: cancelled.

    `faults` are the choices, with why they are unavailable; a single one is not asked for.
    """

    DEFAULT_CSS = """
    DrillDialog > VerticalScroll {
        margin: 2 0 1 0; width: 78; max-height: 88%;
        border: round $warning; border-title-color: $warning;
    }
    DrillDialog OptionList { height: auto; max-height: 6; margin: 0 0 1 0; }
    DrillDialog #about { color: $text-muted; margin: 0 0 1 0; height: auto; }
    DrillDialog #parameters { height: auto; }
    DrillDialog .field { height: auto; }
    DrillDialog .field Input { width: 20; }
    DrillDialog #hypothesis { width: 36; }
    DrillDialog .field Static { width: 1fr; height: auto; color: $text-muted; padding: 0 0 0 2; }
    DrillDialog .field Label { width: 17; padding: 0; color: $foreground; }
    DrillDialog #trouble { color: $error; height: auto; }
    DrillDialog #answers { height: 1; margin: 1 0 0 0; align-horizontal: right; }
    DrillDialog Button { margin: 0 0 0 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel"),
        Binding("ctrl+j,ctrl+s", "order", "What it would do"),
        Binding("ctrl+r", "preset", "Another hypothesis"),
    ]

    def __init__(
        self,
        faults: Sequence[tuple[Fault, str]],
        form: DrillForm,
        trouble: CockpitError | None = None,
    ) -> None:
        """`form`: what the fields begin with; `trouble`: what was wrong with it before."""
        super().__init__()
        self.faults: Mapping[str, tuple[Fault, str]] = {one[0].name: one for one in faults}
        self.form = form
        self.trouble = trouble

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False) as box:
            box.border_title = "Inject a fault"
            box.border_subtitle = "ctrl+s previews · esc closes"
            if len(self.faults) > 1:
                yield OptionList(
                    *(self._option(kind, why) for kind, why in self.faults.values()),
                    compact=True,
                    markup=False,
                )
            yield Static(id="about", markup=False)
            yield Vertical(id="parameters")
            for name, label, help_text in _FIELDS:
                value = Input(getattr(self.form, name), compact=True, id=name)
                yield _field(label, value, help_text)
            yield Static(id="trouble", markup=False)
            with Horizontal(id="answers"):
                yield Button("Cancel (esc)", id="no", compact=True)
                yield Button("Preview (ctrl+s)", id="yes", compact=True, variant="primary")

    def _option(self, kind: Fault, why: str) -> Option:
        text = f"{fit(kind.name, NAME_CELLS)} {why or kind.summary}"
        return Option(fit(text, OPTION_CELLS).rstrip(), id=kind.name, disabled=bool(why))

    async def on_mount(self) -> None:
        self._complain(self.trouble)
        await self._show_fault()
        found = self.query(OptionList)
        if found:
            options = found.first()
            options.highlighted = options.get_option_index(self.form.fault)
            options.focus()
        else:
            self.query(Input).first().focus()

    async def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        name = str(event.option.id)
        if name != self.form.fault:
            self.form = replace(self.form, fault=name, values={})
            await self._show_fault()

    def on_option_list_option_selected(self) -> None:
        self.focus_next()

    async def _show_fault(self) -> None:
        """The parameters of the fault that is chosen."""
        kind, why = self.faults[self.form.fault]
        self.query_one("VerticalScroll").border_title = f"Drill · {kind.name}"
        needs = f" Needs: {', '.join(kind.needs)}." if kind.needs else ""
        summary = kind.summary[:1].upper() + kind.summary[1:]
        text = f"{summary}.{needs} End of the fault: {kind.ending}."
        unavailable = f" Not available here: {why}." if why else ""
        self.query_one("#about", Static).update(text + unavailable)
        box = self.query_one("#parameters")
        async with box.batch():
            await box.remove_children()
            for one in kind.parameters:
                default = default_text(one)
                value = Input(self.form.values.get(one.name, default), compact=True, name=one.name)
                choices = f" ({', '.join(one.choices)})" if one.choices else ""
                await box.mount(_field(one.name, value, f"{one.about}{choices}"))

    def on_input_submitted(self) -> None:
        self.action_order()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "yes":
            self.action_order()
        else:
            self.dismiss(None)

    def action_preset(self) -> None:
        """The next hypothesis; after the last, none."""
        value = self.query_one("#hypothesis", Input)
        texts = list(PRESETS.values())
        at = texts.index(value.value) if value.value in texts else -1
        value.value = texts[(at + 1) % len(texts)]

    def action_order(self) -> None:
        """With what is typed; if that is invalid, show why and stay open."""
        own = {name: self.query_one(f"#{name}", Input).value for name, _, _ in _FIELDS}
        given = {
            field.name: field.value
            for field in self.query_one("#parameters").query(Input)
            if field.name
        }
        form = replace(self.form, values=given, **own)
        try:
            plan(form)
        except CockpitError as error:
            self._complain(error)
        else:
            self.dismiss(form)

    def _complain(self, error: CockpitError | None) -> None:
        text = (
            "\n".join(line for line in (error.what, error.why, error.todo) if line) if error else ""
        )
        place = self.query_one("#trouble", Static)
        place.update(text)
        place.display = bool(text)
        if text:  # below the last field: on a small screen the form is longer than its box
            self.call_after_refresh(place.scroll_visible, animate=False)


def _field(label: str, value: Input, help_text: str) -> Horizontal:
    return Horizontal(
        Label(label, markup=False), value, Static(help_text, markup=False), classes="field"
    )
