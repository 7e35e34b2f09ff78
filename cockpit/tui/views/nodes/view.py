"""View 9: the Kubernetes nodes under the pods."""

from __future__ import annotations

from textual.app import ComposeResult

from cockpit.tui.view_state import ViewState
from cockpit.tui.views.nodes.rows import NODE_COLUMNS, node_rows
from cockpit.tui.views.sorted_view import SortedView
from cockpit.tui.widgets.table.table import LineTable


class NodesView(SortedView):
    NAME = "nodes"
    TABLES = ("nodes",)
    KIND = "machine"
    DEFAULT_CSS = """
    NodesView LineTable { height: 1fr; border-top: solid $border;
        border-title-color: $foreground; border-title-style: bold;
        border-title-background: $surface; }
    """

    def compose(self) -> ComposeResult:
        yield LineTable(NODE_COLUMNS, id="nodes")

    def redraw(self, state: ViewState) -> None:
        table = self.query_one(LineTable)
        if not state.on_kubernetes:
            table.set_empty("No K8s nodes: this cluster is not on Kubernetes.")
        elif why := self.cockpit.refusal("cordon"):
            table.set_empty(f"No K8s nodes are known. {why}")
        else:
            table.set_empty("No K8s nodes yet: waiting for Kubernetes.")
        self.show_rows(node_rows(state.store, state.now_s), "K8s nodes")
