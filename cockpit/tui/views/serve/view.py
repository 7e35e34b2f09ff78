"""The deployments of Ray Serve, and below them the replicas of the selected one."""

from __future__ import annotations

from textual.app import ComposeResult

from cockpit.model.text import one_line
from cockpit.tui.keys import shown_key
from cockpit.tui.view_state import ViewState
from cockpit.tui.views.serve.rows import (
    DEPLOYMENT_COLUMNS,
    REPLICA_COLUMNS,
    deployment_rows,
    replica_rows,
    why_no_latency,
)
from cockpit.tui.views.sorted_view import SortedView
from cockpit.tui.widgets.table.table import LineTable
from cockpit.tui.widgets.text import Text


class ServeView(SortedView):
    NAME = "serve"
    TABLES = ("deployments", "replicas")
    KIND = "deployment"
    SCOPED_CSS = False  # it uses the screen's size classes
    DEFAULT_CSS = """
    ServeView LineTable { height: 1fr; border-top: solid $border;
        border-title-color: $foreground; border-title-style: bold;
        border-title-background: $surface; }
    ServeView #about { height: auto; max-height: 4; padding: 0 1; background: $panel; }
    .-tiny ServeView #replicas, .-tiny ServeView #about, ServeView.-none #replicas {
        display: none; }
    """

    def compose(self) -> ComposeResult:
        yield LineTable(DEPLOYMENT_COLUMNS, id="deployments")
        yield Text(id="about")
        empty = f"No replica. Press {shown_key('object')} to show the deployment."
        yield LineTable(REPLICA_COLUMNS, id="replicas", empty=empty)

    def redraw(self, state: ViewState) -> None:
        store, table = state.store, self.table()
        source = store.sources.get("serve")
        failed = source is not None and not source.absent and source.error
        table.set_empty(
            f"No deployments: {source.error} Run: cockpit doctor"
            if source and failed
            else "No Serve application. Run: cockpit launch serve --set run_path=DIRECTORY"
        )
        self.show_rows(deployment_rows(store, state.now_s), f"Serve{why_no_latency(store)}")
        chosen = store.deployments.get(table.cursor_key or "")
        message = one_line(chosen.message) if chosen is not None else ""
        about = self.query_one("#about", Text)
        about.display = bool(message)
        about.show(message)
        rows = replica_rows(store, table.cursor_key, state.now_s)
        self.show_rows(rows, f"Replicas of {table.cursor_key}", "replicas")
        self.set_class(table.cursor_key is None, "-none")

    def on_line_table_highlighted(self, message: LineTable.Highlighted) -> None:
        if message.table.id == "deployments":
            self.cockpit.redraw()
