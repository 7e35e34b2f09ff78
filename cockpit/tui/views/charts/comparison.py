"""Select the runs for a comparison: live ones and recordings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from cockpit import format
from cockpit.config import paths
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run
from cockpit.store.store import Store
from cockpit.tui.app_base import AppBase
from cockpit.tui.dialogs.dialog import Dialog
from cockpit.tui.terminal.cells import fit
from cockpit.tui.views.charts.curve_builder import Compared

if TYPE_CHECKING:
    from cockpit.tui.views.charts.view import ChartsView

MOST = 4
"""Runs laid over one: more cannot be distinguished."""


class Choice(Struct, frozen=True):
    """A run that can be laid over. `path`: of its recording; None for one in the store."""

    key: str
    name: str
    about: str
    path: Path | None = None


def choices(store: Store, state_dir: Path) -> list[Choice]:
    """The other runs of the store, then the recordings of all others, the newest first."""
    from cockpit.recorder.reading.library import Library

    current = current_run(store)
    live = [
        Choice(f"run {run.id}", one_line(run.name or run.id), run.state.value.lower())
        for run in store.runs.values()
        if run is not current
        and not run.is_thinned
        and any(len(run.curves[name]) for name in run.curves)
    ]
    whole = {run.id for run in store.runs.values() if not run.is_thinned}
    recorded = [
        Choice(
            f"file {one.path}",
            one_line(one.name),
            time.strftime("%d %b %H:%M", time.localtime(one.begin_s))
            + f", {format.duration(one.end_s - one.begin_s)}, "
            + format.plural(one.summary.steps, "step"),
            one.path,
        )
        for one in Library(state_dir).list()
        if not one.trouble and one.summary.run_id not in whole
    ]
    return live + recorded


def read(path: Path, name: str) -> Compared:
    """The run of a recording. Raises CockpitError where it cannot be read."""
    from cockpit.recorder.reading.recording import Recording

    with Recording.open(path) as recording:
        runs = recording.store().runs
        run = runs.get(recording.run.run_id) or next(iter(runs.values()), None)
    if run is None:
        raise CockpitError(f"The recording {name} contains no run.", f"Read: {path}")
    return Compared(name, run)


async def compare(app: AppBase, view: ChartsView) -> None:
    """Ask for the runs, read them in a thread, and pass them to the view."""
    store = app.store
    found = await asyncio.to_thread(choices, store, paths.state_dir())
    by_key = {one.key: one for one in found}
    before = {key: one for key, one in view.compared_by_key.items() if key in by_key}
    picked = await app.push_screen_wait(Comparing(found, list(before)))
    if picked is None:
        return
    made: dict[str, Compared] = {}
    for key in picked:
        choice = by_key[key]
        if key in before:
            made[key] = before[key]
        elif choice.path is not None:
            made[key] = await asyncio.to_thread(read, choice.path, choice.name)
        else:
            run: RunView | None = store.runs.get(key.removeprefix("run "))
            if run is not None:
                made[key] = Compared(choice.name, run)
    view.compare(made)
    app.redraw()


class Comparing(Dialog[list[str] | None]):
    """Enter adds or removes a run; esc closes the dialog, with the keys of those chosen."""

    DEFAULT_CSS = """
    Comparing > Vertical { width: 76; max-height: 90%; }
    Comparing OptionList { height: auto; max-height: 14; margin: 1 0; }
    Comparing Static { color: $text-muted; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,c,q", "done", "Done"),
        Binding("space", "take", "Add or remove the run"),
        Binding("n", "none", "None"),
    ]

    def __init__(self, found: Sequence[Choice], taken: Sequence[str]) -> None:
        super().__init__()
        self.found, self.taken = tuple(found), list(taken)

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "Compare with"
            if self.found:
                options = [Option(self._line(one), id=str(n)) for n, one in enumerate(self.found)]
                yield OptionList(*options, compact=True, markup=False)
                yield Static("enter adds or removes a run · n none · esc done", markup=False)
            else:
                yield Static(
                    "There is no other run here, and no recording of one. "
                    "cockpit record RUN makes one.",
                    markup=False,
                )

    def on_mount(self) -> None:
        if self.found:
            self.query_one(OptionList).focus()

    def _line(self, one: Choice) -> str:
        mark = "[x]" if one.key in self.taken else "[ ]"
        return f"{mark} {fit(one.name, 34)} {one.about}"

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        key = self.found[event.option_index].key
        if key in self.taken:
            self.taken.remove(key)
        elif len(self.taken) < MOST:
            self.taken.append(key)
        else:
            self.notify(f"At most {MOST} runs can be distinguished.", timeout=4)
        self._write()

    def action_take(self) -> None:
        if self.found:
            self.query_one(OptionList).action_select()

    def action_none(self) -> None:
        self.taken.clear()
        self._write()

    def action_done(self) -> None:
        self.dismiss(self.taken)

    def _write(self) -> None:
        for number, one in enumerate(self.found):
            options = self.query_one(OptionList)
            options.replace_option_prompt_at_index(number, self._line(one))
