"""View 1: the cluster, the run and how it does, on one page."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from cockpit.insight.metrics.stall import stall
from cockpit.insight.recovery.measurement import is_settled, recovery
from cockpit.store.selectors import current_run
from cockpit.tui.keys import NUMBERS
from cockpit.tui.main.frame import Line
from cockpit.tui.main.titles import entitle
from cockpit.tui.rows.text import group_notes
from cockpit.tui.view_state import Target, ViewState
from cockpit.tui.views.charts.curves import LOSS, THROUGHPUT, RunChart, marks_of, shown_for
from cockpit.tui.views.overview import run_panel
from cockpit.tui.views.overview.group_rows import GROUP_COLUMNS, group_rows
from cockpit.tui.views.overview.sources_line import sources_line
from cockpit.tui.views.pods.event_rows import EVENT_COLUMNS, EventRows, no_events
from cockpit.tui.views.view import View
from cockpit.tui.widgets.bars.recovery import RecoveryBar
from cockpit.tui.widgets.table.table import LineTable
from cockpit.tui.widgets.text import Text


class OverviewView(View):
    NAME = "overview"
    SCOPED_CSS = False  # it uses the screen's size classes
    DEFAULT_CSS = """
    OverviewView .panel { border-top: solid $border-blurred; border-title-color: $foreground;
        border-title-style: bold; border-title-background: $surface;
        border-subtitle-color: $muted; border-subtitle-background: $surface; }
    OverviewView #live { height: auto; max-height: 2; padding: 0 1; display: none; }
    OverviewView #top { height: auto; }
    OverviewView #cluster { width: 2fr; height: 100%; margin: 0 1 0 0; }
    OverviewView #cluster Static { height: auto; padding: 0 1; }
    OverviewView #groups { height: 1fr; min-height: 2; }
    OverviewView #run { width: 3fr; height: auto; min-height: 7; }
    OverviewView #run Static { padding: 0 1; height: auto; }
    OverviewView #alarms { height: auto; padding: 0 1; text-wrap: nowrap;
        text-overflow: ellipsis; display: none; }
    OverviewView #recovery { height: auto; padding: 0 1; }
    OverviewView #outcome, OverviewView #facts, OverviewView #health {
        text-wrap: nowrap; text-overflow: ellipsis; }
    OverviewView #facts.-no-run { text-wrap: wrap; }
    OverviewView #outcome { height: 1; }
    OverviewView #charts { height: 3fr; }
    OverviewView #loss { width: 1fr; margin: 0 1 0 0; }
    OverviewView #samples_per_s { width: 1fr; }
    OverviewView #events { height: 2fr; min-height: 4; }
    .-short OverviewView #charts, .-tiny OverviewView #charts { display: none; }
    .-tiny OverviewView #events, .-tiny OverviewView #sources { display: none; }
    .-narrow OverviewView #cluster { display: none; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._event_rows = EventRows()

    def compose(self) -> ComposeResult:
        yield Text(id="live")
        with Horizontal(id="top"):
            with Vertical(id="cluster", classes="panel"):
                yield Text(id="health")
                yield LineTable(
                    GROUP_COLUMNS,
                    id="groups",
                    empty=f"No worker group yet. Press {NUMBERS['pods']} for the pods.",
                )
            with Vertical(id="run", classes="panel"):
                yield Text(id="facts")
        yield Text(id="alarms")
        with Vertical(id="recovery", classes="panel"):
            yield Text(id="outcome")
            yield RecoveryBar()
        with Horizontal(id="charts"):
            yield RunChart(LOSS)
            yield RunChart(THROUGHPUT)
        yield LineTable(
            EVENT_COLUMNS,
            id="events",
            classes="panel",
            empty=no_events(),
            newest_first=True,
        )
        yield Line(id="sources")

    def on_mount(self) -> None:
        entitle(self.query_one("#cluster"), "Cluster")
        entitle(self.query_one("#recovery"), "Recovery")
        entitle(self.query_one("#events"), "Events")

    def redraw(self, state: ViewState) -> None:
        self._cluster(state)
        self._run(state)
        self._recovery(state)
        self._events(state)
        sources = self.query_one("#sources", Line)
        sources.show(sources_line(state, self.size.width))

    def target(self) -> Target | None:
        groups = self.query_one("#groups", LineTable)
        key = groups.cursor_key
        return Target("group", key) if key is not None and groups.has_focus else None

    def forget(self) -> None:
        for table in self.query(LineTable):
            table.forget()

    def _cluster(self, state: ViewState) -> None:
        groups = self.query_one("#groups", LineTable)
        groups.set_rows(group_rows(state.store))
        notes = () if "note" in groups.visible_columns else group_notes(state.store.groups.values())
        self.query_one("#health", Text).show(run_panel.health(state, notes))

    def _run(self, state: ViewState) -> None:
        run = current_run(state.store)
        panel = self.query_one("#run")
        entitle(panel, f"Run {run.name or run.id}" if run else "Run")
        found = (
            self.cockpit.diagnoses.of(state, run, self.cockpit.session) if run is not None else None
        )
        stalled = stall(run, state.now_s) if run is not None else None
        live = self.query_one("#live", Text)
        live.display = run is not None
        if run is not None:
            cause = found.cause if found is not None else None
            live.show(run_panel.live(state, run, cause, stalled, max(1, self.size.width - 2)))
        roomy = self.screen.has_class("-tall")
        facts = run_panel.facts(state, run, found, stalled, with_cause=roomy)
        pane = self.query_one("#facts", Text)
        pane.set_class(run is None, "-no-run")
        pane.show(facts)
        alarms = self.query_one("#alarms", Text)
        content = run_panel.alarms(state, 4 if self.screen.has_class("-tall") else 2)
        alarms.display = content is not None
        if content is not None:
            alarms.show(content)
        marks = marks_of(state.store, run)
        for chart in shown_for(state, run, self.query(RunChart), (LOSS, THROUGHPUT)):
            chart.show_run(run, marks, state.now_s)

    def _recovery(self, state: ViewState) -> None:
        """The newest drill: its phases while it runs, then its result in a line."""
        panel, bar = self.query_one("#recovery"), self.query_one(RecoveryBar)
        panel.display = bool(state.store.drills)
        if not state.store.drills:
            return
        drill = state.store.drills[-1]
        measured = recovery(state.store, drill)
        going = not is_settled(state.store, measured)
        bar.styles.height = 2 if going or self.screen.has_class("-tall") else 1
        bar.set_recovery(measured, state.now_s, going=going)
        content = run_panel.outcome(state, measured, self.size.width - 2)
        self.query_one("#outcome", Text).show(content)

    def _events(self, state: ViewState) -> None:
        self.query_one("#events", LineTable).set_rows(self._event_rows.rows(state.store, 50))
