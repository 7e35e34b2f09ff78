"""View 8: alerts, and the diagnosis of the run."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from cockpit.insight.metrics.diagnosis import Diagnosis
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run
from cockpit.store.store import AlertView
from cockpit.tui.main.titles import entitle
from cockpit.tui.rows.text import no_run
from cockpit.tui.view_state import Target, ViewState
from cockpit.tui.views.alerts.rows import ALERT_COLUMNS, alert_of, alert_rows
from cockpit.tui.views.overview import diagnosis_panel
from cockpit.tui.views.sorted_view import SortedView
from cockpit.tui.widgets.bars.shares import ShareBar
from cockpit.tui.widgets.table.table import LineTable
from cockpit.tui.widgets.text import Text

NO_DIAGNOSIS = Diagnosis(None, None, None, None, None)

NO_RUN = "not known: no training run yet"


class AlertsView(SortedView):
    NAME = "alerts"
    TABLES = ("alerts",)
    KIND = "alert"
    SCOPED_CSS = False  # it uses the screen's size classes
    DEFAULT_CSS = """
    AlertsView .panel { border-top: solid $border-blurred; border-title-color: $foreground;
        border-title-style: bold; border-title-background: $surface; }
    AlertsView LineTable { height: 1fr; min-height: 3; }
    AlertsView #details { height: auto; max-height: 7; padding: 0 1; }
    AlertsView #diagnosis { height: auto; }
    AlertsView #diagnosis > * { padding: 0 1; }
    AlertsView #facts { height: auto; text-wrap: nowrap; }
    .-short AlertsView #diagnosis, .-tiny AlertsView #diagnosis { display: none; }
    .-tiny AlertsView #details, AlertsView #details.-none { display: none; }
    """

    def compose(self) -> ComposeResult:
        yield LineTable(ALERT_COLUMNS, id="alerts", classes="panel")
        yield Text(id="details", classes="panel")
        with Vertical(id="diagnosis", classes="panel"):
            yield ShareBar("step time", id="step")
            yield ShareBar("goodput", id="goodput")
            yield Text(id="facts")

    def on_mount(self) -> None:
        entitle(self.query_one("#details"), "Details")

    def redraw(self, state: ViewState) -> None:
        store, run = state.store, current_run(state.store)
        table = self.query_one(LineTable)
        rows = alert_rows(store, state.now_s)
        table.set_empty(
            no_run(state)
            if run is None
            else "No alerts: the detectors have found no problem. There is nothing to do."
        )
        shown = self.show_rows(rows)
        entitle(table, self._heading(state, len(shown), len(rows)))
        view = alert_of(store, table.cursor_key)
        self._set_details(view, state.now_s)
        self._diagnose(state, run)

    def _heading(self, state: ViewState, shown: int, of: int) -> str:
        raised = len(state.store.alerts)
        past = len(state.store.alerts_past)
        text = f"Alerts · {raised} raised, {past} cleared"
        return f"{text} · {shown} of {of} with “{self.order.text}”" if self.order.text else text

    def _diagnose(self, state: ViewState, run: RunView | None) -> None:
        panel = self.query_one("#diagnosis")
        entitle(panel, f"Diagnosis of {run.name or run.id}" if run else "Diagnosis")
        if not panel.display:
            return
        found = (
            self.cockpit.diagnoses.of(state, run, self.cockpit.session)
            if run is not None
            else NO_DIAGNOSIS
        )
        step = "not known: needs recent steps, and a job that reports their parts"
        step, goodput = (step, "not known yet") if run is not None else (NO_RUN, NO_RUN)
        parts = diagnosis_panel.step_parts(found), diagnosis_panel.goodput_parts(found)
        self.query_one("#step", ShareBar).show_parts(parts[0], step)
        self.query_one("#goodput", ShareBar).show_parts(parts[1], goodput)
        is_over = run is not None and run.state.is_over
        self.query_one("#facts", Text).show(
            diagnosis_panel.facts(found, self.size.width - 2, is_over=is_over)
        )

    def _set_details(self, view: AlertView | None, now_s: float) -> None:
        self.query_one("#details").set_class(view is None, "-none")
        if view is not None:
            self.query_one("#details", Text).show(diagnosis_panel.details(view, now_s))

    def on_line_table_highlighted(self, message: LineTable.Highlighted) -> None:
        message.stop()
        self._set_details(alert_of(self.cockpit.store, message.key), self.cockpit.now_s)

    def chosen(self) -> AlertView | None:
        """The alert under the cursor."""
        return alert_of(self.cockpit.store, self.query_one(LineTable).cursor_key)

    def target(self) -> Target | None:
        """The rank or the hang that the alert is of: enter opens its page."""
        view = self.chosen()
        if view is not None and view.alert.finding.kind == "hang":
            return Target("hang", view.alert.finding.run_id)
        kind, _, name = (view.alert.finding.subject if view else "").partition(" ")
        return Target("rank", name) if kind == "rank" and name.isdecimal() else None
