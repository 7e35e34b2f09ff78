"""Choose a bundled job, then its settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias

from msgspec import Struct
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Input, Label, OptionList, Static
from textual.widgets.option_list import Option

from cockpit.launch.job import BundledJob
from cockpit.preflight.finding import Finding, attention, failed, summary
from cockpit.tui.changes.actions import Via
from cockpit.tui.commands.launch_form import LaunchForm
from cockpit.tui.dialogs.dialog import Dialog
from cockpit.tui.dialogs.launch_settings import SettingsList
from cockpit.tui.dialogs.launch_value import SettingValue
from cockpit.tui.main.titles import entitle
from cockpit.tui.terminal.cells import fit

_WAYS: Mapping[Via, str] = {
    "job": "As a job over HTTP (ctrl+r)",
    "rayjob": "As a RayJob resource (ctrl+r)",
}


class Order(Struct, frozen=True):
    """The job to launch; `settings` are those that differ from its defaults."""

    name: str
    settings: Mapping[str, str]
    via: Via = "job"
    flags: str = ""
    """Those of `cockpit launch`, and ` -- COMMAND` if `name` is empty."""

    @property
    def title(self) -> str:
        return self.name or "The command"


COMMAND = "--"
"""Before a command, in the flags."""
FLAGS = "of cockpit launch: --env KEY=VALUE --pip PACKAGE …, or -- COMMAND (ctrl+g)"
Check: TypeAlias = Callable[[Order], Awaitable[Sequence[Finding]]]


class _Find(Input):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "screen.move(-1)", "Up in the list below"),
        Binding("down", "screen.move(1)", "Down in the list below"),
    ]


class Launch(Dialog[Order | None]):
    """First a searchable list of the jobs; then the job's settings by group.

    Returns a valid order; None: cancelled.
    """

    DEFAULT_CSS = """
    Launch > Vertical { width: 110; height: 44; padding: 0 1; }
    Launch #wrong { color: $bad; height: auto; }
    Launch #preflight { height: auto; max-height: 8; color: $text-muted; }
    Launch #preflight.failed { color: $bad; }
    Launch #about { color: $text-muted; height: auto; max-height: 2; }
    Launch #finding { height: 1; }
    Launch #finding Label { color: $text-muted; width: 6; }
    Launch #find { width: 1fr; background: $surface; }
    Launch #more { height: 1; }
    Launch #more Label { color: $text-muted; width: 6; }
    Launch #flags { width: 1fr; background: $surface; }
    Launch #jobs { height: 1fr; margin: 1 0; }
    Launch #answers { height: 1; align-horizontal: right; }
    Launch Button { margin: 0 0 0 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("ctrl+j,ctrl+s", "order", "Launch"),
        Binding("ctrl+r", "other_way", "As a job, or as a RayJob"),
        Binding("ctrl+f", "find", "Find"),
        Binding("ctrl+g", "flags", "Flags, or a command"),
    ]

    def __init__(
        self,
        jobs: Sequence[BundledJob],
        chosen: str = "",
        *,
        rayjob: bool = False,
        typed: Order | None = None,
        wrong: str = "",
        where: str = "",
        check: Check | None = None,
    ) -> None:
        """`where`: the cluster, in the title. `chosen`: begin with its settings. `rayjob`: whether
        it may be launched as a RayJob too. `typed`: an order that was refused, and `wrong` why.
        `check`: the preflight of an order; if it fails, its lines are shown before the launch."""
        super().__init__()
        self.check = check
        self.checked: Order | None = None
        """The order that is being checked, or has failed: given again, it is launched."""
        self.form = LaunchForm(jobs, jobs[0].name)
        self.rayjob = rayjob
        self.wrong, self.where = wrong, where
        self.via: Via = typed.via if typed else "job"
        if typed is not None:
            self.form.typed[typed.name] = dict(typed.settings)
        self.typed_flags = typed.flags if typed else ""
        self.is_choosing = chosen not in {job.name for job in jobs}
        """The jobs are shown, not the settings of one."""
        self.begins_with = chosen

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self.wrong, id="wrong", markup=False)
            yield Static(id="about", markup=False)
            with Horizontal(id="finding"):
                yield Label("find")
                yield _Find(compact=True, id="find")
            with Horizontal(id="more"):
                yield Label("flags")
                yield Input(self.typed_flags, placeholder=FLAGS, compact=True, id="flags")
            yield OptionList(id="jobs", compact=True, markup=False)
            yield SettingsList(self.form)
            yield SettingValue()
            yield Static(id="preflight", markup=False)
            with Horizontal(id="answers"):
                if self.rayjob:
                    yield Button(_WAYS[self.via], id="via", compact=True)
                yield Button("Cancel (esc)", id="no", compact=True)
                yield Button("Launch (ctrl+s)", id="yes", compact=True, variant="primary")

    @property
    def jobs(self) -> OptionList:
        return self.query_one("#jobs", OptionList)

    @property
    def settings(self) -> SettingsList:
        return self.query_one(SettingsList)

    @property
    def detail(self) -> SettingValue:
        return self.query_one(SettingValue)

    @property
    def flags(self) -> Input:
        return self.query_one("#flags", Input)

    @property
    def finding(self) -> Input:
        return self.query_one(_Find)

    def on_mount(self) -> None:
        self.app.clear_notifications()  # they would lie over it
        self.finding.cursor_blink = self.flags.cursor_blink = False
        self.query_one("#wrong").display = bool(self.wrong)
        if self.is_choosing:
            self._choose_job(self.begins_with)
        else:
            self._choose_settings(self.begins_with)

    def on_resize(self) -> None:
        # A column is as wide as there is room, which is known after the layout.
        self.call_after_refresh(self._fill)

    def _choose_job(self, text: str = "") -> None:
        self.is_choosing = True
        self._show(text)
        self.finding.focus()

    def _choose_settings(self, name: str) -> None:
        self.is_choosing = False
        self.form.chosen = name
        self._show("")
        self.settings.focus()

    def _show(self, text: str) -> None:
        """The list of this stage in place of that of the other."""
        self._check_again()
        choosing = self.is_choosing
        self.jobs.display = choosing
        self.settings.display = self.detail.display = not choosing
        about = self.query_one("#about", Static)
        about.display = not choosing
        about.update(self.form.job.summary)
        self.query_one("#no", Button).label = "Cancel (esc)" if choosing else "Jobs (esc)"
        with self.prevent(Input.Changed):
            self.finding.value = text
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        if self.is_choosing:
            self._fill_jobs()
        else:
            self.settings.fill(self.finding.value)
            self.detail.explain(self.settings.line)
        self._entitle()

    def _fill_jobs(self) -> None:
        jobs, found = self.jobs, self.form.found(self.finding.value)
        cells = max((len(job.name) for job in found), default=0) + 2
        room = jobs.scrollable_content_region.width - cells
        jobs.set_options(
            Option(
                Content.assemble(
                    fit(job.name, cells),
                    Content.styled(fit(job.summary, room).rstrip(), "$muted"),
                ),
                id=job.name,
            )
            for job in found
        )
        if found:
            names = [job.name for job in found]
            likely = self.finding.value or self.form.chosen not in names
            jobs.highlighted = 0 if likely else names.index(self.form.chosen)
        else:
            jobs.add_option(Option(f"No job has {self.finding.value!r}.", disabled=True))

    def _entitle(self) -> None:
        box = self.query_one("Launch > Vertical")
        changed = len(self.form.changed)
        some = f" · {changed} changed" if changed else ""
        what = "Launch a job" if self.is_choosing else f"Launch {self.form.chosen}{some}"
        entitle(box, f"{what} · {self.where}" if self.where else what)
        box.border_subtitle = (
            "type to find · enter chooses"
            if self.is_choosing
            else "enter changes · ← → another · backspace default · / finds"
        )

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input is self.flags:
            self._check_again()
        else:
            self._fill()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input is self.flags:
            if self._is_command:
                self.action_order()
            else:
                self.finding.focus()
        elif self.is_choosing:
            self.jobs.action_select()
        else:
            self.settings.focus()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if event.option_list is self.jobs:
            if event.option.id != self.form.chosen:
                self._check_again()
            self.form.chosen = str(event.option.id)
        else:
            self.detail.explain(self.settings.line)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if event.option_list is self.jobs:
            self._choose_settings(str(event.option.id))
        elif (line := self.settings.line) is None:
            self.settings.toggle()
        elif line.setting.type == "bool":
            self.settings.action_another(1)
        else:
            self.detail.edit(line)

    def on_settings_list_changed(self) -> None:
        self._check_again()
        self.detail.explain(self.settings.line)
        self._entitle()

    def on_settings_list_typed(self, event: SettingsList.Typed) -> None:
        if (line := self.settings.line) is not None:
            if not self.detail.is_typing:
                self.detail.edit(line)
            self.detail.type(event.character)

    def on_setting_value_typed(self, event: SettingValue.Typed) -> None:
        if (line := self.settings.line) is not None:
            self.settings.put(line.setting, event.text)

    def on_setting_value_over(self) -> None:
        self.settings.focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "yes":
            self.action_order()
        elif event.button.id == "via":
            self.action_other_way()
        else:
            self.action_back()

    def action_move(self, by: int) -> None:
        """From where one types: along the jobs, or into the settings."""
        if not self.is_choosing:
            self.settings.focus()
        elif by > 0:
            self.jobs.action_cursor_down()
        else:
            self.jobs.action_cursor_up()

    def action_flags(self) -> None:
        self.flags.focus()

    def action_find(self) -> None:
        self.finding.focus()

    def action_back(self) -> None:
        """From the input, then from the search, then to the jobs, then close."""
        if self.detail.is_editing:
            self.detail.undo()
        elif self.finding.value:
            self.finding.value = ""
            if not self.is_choosing:
                self.settings.focus()
        elif self.flags.has_focus:
            (self.finding if self.is_choosing else self.settings).focus()
        elif self.is_choosing:
            self.dismiss(None)
        elif self.finding.has_focus:
            self.settings.focus()
        else:
            self._choose_job()

    def action_other_way(self) -> None:
        """As a job over HTTP or as a RayJob, where there is the choice."""
        if self.rayjob:
            self._check_again()
            self.via = "rayjob" if self.via == "job" else "job"
            self.query_one("#via", Button).label = _WAYS[self.via]

    def action_order(self) -> None:
        """Unless a value is wrong: then that is shown."""
        flags = self.flags.value.strip()
        if self.is_choosing and self._is_command:
            self._give(Order("", {}, self.via, flags))
            return
        if self.is_choosing and not self.form.found(self.finding.value):
            return
        if wrong := self.form.wrong:
            self.form.reveal(wrong[0].name)
            self._choose_settings(self.form.chosen)
            self.call_after_refresh(self.settings.go_to, wrong[0].name)
            return
        self._give(Order(self.form.chosen, self.form.changed, self.via, flags))

    @property
    def _is_command(self) -> bool:
        """Whether the flags end with a command."""
        return f" {COMMAND} " in f" {self.flags.value} "

    def _give(self, order: Order) -> None:
        if self.check is None or order == self.checked:
            self.dismiss(order)
            return
        self.checked = order
        self._report("Checking the pods … ctrl+s launches without waiting.")
        self.run_worker(self._preflight(self.check, order), name="preflight", exclusive=True)

    def _check_again(self) -> None:
        """Another order may be given now: the one that is being checked is not launched."""
        self.checked = None
        self._report("")

    async def _preflight(self, check: Check, order: Order) -> None:
        """Launch if no check failed; else show the findings, unless another order was given."""
        found = await check(order)
        if order != self.checked or not self.is_current:
            return
        lines = [one.line for one in attention(found)]
        if failed(found):
            self._report("\n".join([*lines, "ctrl+s launches anyway."]), has_failed=True)
            return
        if lines:
            said = "\n".join(lines)
            self.notify(said, title=summary(found), severity="warning", timeout=8, markup=False)
        self.dismiss(order)

    def _report(self, text: str, *, has_failed: bool = False) -> None:
        place = self.query_one("#preflight", Static)
        place.update(text)
        place.display = bool(text)
        place.set_class(has_failed, "failed")
