"""The page of `:experiments`: the runs of MLflow that belong to the watched runs."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from cockpit.store.store import Store
from cockpit.tui.dialogs.reading import Reading
from cockpit.tui.keys import BY_ID, Key
from cockpit.tui.rows.text import waiting
from cockpit.tui.view_state import ViewState
from cockpit.tui.views.detail_screen import DetailScreen
from cockpit.tui.views.experiments.rows import COLUMNS, beside, details, newest_first, rows
from cockpit.tui.widgets.table.table import LineTable

_KEYS = (
    Key("back", "escape", "esc", "back", "Back"),
    Key("open", "enter", "enter", "open", "Parameters, metrics and artifacts of the run"),
    Key("mark_run", "space", "space", "mark", "Mark the run to compare with"),
    Key("compare_runs", "c", "c", "compare", "Compare the selected run with the marked one"),
    BY_ID["save"],
    BY_ID["help"],
    BY_ID["quit"],
)
NONE = "No run of MLflow belongs to a run here. To list all of them, run: cockpit experiments"


class ExperimentsPage(DetailScreen):
    NAME = "Experiments"
    KEYS = _KEYS
    DEFAULT_CSS = """
    ExperimentsPage LineTable { height: 1fr; border-top: solid $border;
        border-title-color: $foreground; border-title-style: bold;
        border-title-background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "mark_run", "Mark the run"),
        Binding("c", "compare_runs", "Compare with the marked run"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._marked = ""
        """The id of the run to compare with."""

    def compose_page(self) -> ComposeResult:
        yield LineTable(COLUMNS)

    def redraw(self, state: ViewState) -> None:
        super().redraw(state)
        table, runs = self.query_one(LineTable), newest_first(state.store)
        table.set_empty(why_empty(state.store))
        table.set_rows(rows(runs, self._marked, state.now_s))
        self.entitle(table, f"Experiments · {len(runs)} in MLflow" if runs else "Experiments")

    def action_open(self) -> None:
        """A click on the key in the footer; enter itself is a key of the table."""
        self.query_one(LineTable).action_select()

    def on_line_table_selected(self, message: LineTable.Selected) -> None:
        message.stop()
        run = self.cockpit.store.tracked.get(message.key)
        if run is not None:
            title = f"Run {run.name or run.id}"
            self.app.push_screen(Reading(title, details(run, self.cockpit.view_state().now_s)))

    def action_mark_run(self) -> None:
        key = self.query_one(LineTable).cursor_key or ""
        self._marked = "" if key == self._marked else key
        self.cockpit.redraw()

    def action_compare_runs(self) -> None:
        tracked = self.cockpit.store.tracked
        first = tracked.get(self._marked)
        second = tracked.get(self.query_one(LineTable).cursor_key or "")
        if first is None or second is None or first is second:
            self.notify("Mark a run with space, select another one, and press c.", timeout=5)
            return
        self.app.push_screen(Reading("Two runs", beside(first, second)))


def why_empty(store: Store) -> str:
    """Why no run is listed, and what to do."""
    source = store.sources.get("mlflow")
    if source is None:
        return waiting("No experiments yet: waiting for MLflow.")
    if source.absent or source.error:
        error = source.error or "there is no MLflow server"
        return f"No experiments: {error}. To set MLflow up, run: cockpit config edit"
    return NONE
