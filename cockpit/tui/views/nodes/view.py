"""View 9: the Kubernetes nodes under the pods, which of them are suspect, and the Ray nodes."""

from __future__ import annotations

import math
import time

from textual import work
from textual.app import ComposeResult

from cockpit.config import paths
from cockpit.insight.nodes.incident import RunIncidents
from cockpit.insight.nodes.suspects import suspects
from cockpit.model.cluster import ClusterRef
from cockpit.recorder.reading.library import Library
from cockpit.recorder.reading.node_history import NodeHistory
from cockpit.sources.polling.thread import in_thread
from cockpit.tui.rows.text import waiting
from cockpit.tui.view_state import ViewState
from cockpit.tui.views.nodes.rows import NODE_COLUMNS, RAY_COLUMNS, node_rows, ray_rows
from cockpit.tui.views.sorted_view import SortedView
from cockpit.tui.widgets.table.table import LineTable

READ_EVERY_S = 60.0


class NodesView(SortedView):
    NAME = "nodes"
    TABLES = ("nodes", "ray")
    KIND = "node"
    SCOPED_CSS = False  # it uses the screen's size classes
    DEFAULT_CSS = """
    NodesView LineTable { height: 1fr; border-top: solid $border;
        border-title-color: $foreground; border-title-style: bold;
        border-title-background: $surface; }
    .-tiny NodesView #ray { display: none; }
    .-tiny NodesView.-only-ray #ray { display: block; }
    NodesView.-only-ray #nodes { display: none; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._history = NodeHistory(Library(paths.state_dir()))
        self._runs: list[RunIncidents] = []
        self._read_s, self._is_reading = -math.inf, False

    def compose(self) -> ComposeResult:
        yield LineTable(NODE_COLUMNS, id="nodes")
        empty = waiting("No Ray nodes yet: waiting for the dashboard.")
        yield LineTable(RAY_COLUMNS, id="ray", empty=empty)

    def redraw(self, state: ViewState) -> None:
        table = self.table()
        self.set_class(not state.lists_nodes, "-only-ray")
        if not state.on_kubernetes:
            table.set_empty(waiting("No hosts yet: connecting."))
        elif why := self.cockpit.refusal("cordon"):
            table.set_empty(f"No K8s nodes are known. {why} Run: cockpit doctor")
        else:
            table.set_empty(waiting("No K8s nodes yet: waiting for Kubernetes."))
        ref = state.store.ref
        due = time.monotonic() - self._read_s >= READ_EVERY_S
        if ref is not None and state.lists_nodes and due and not self._is_reading:
            self._read_s, self._is_reading = time.monotonic(), True
            self._read(ref)
        found = {
            one.node: one
            for one in suspects(self._runs, list(state.store.kubernetes_nodes.values()))
        }
        if state.lists_nodes:
            title = "K8s nodes" if state.on_kubernetes else "Hosts"
            self.show_rows(node_rows(state.store, state.now_s, found), title)
        self.show_rows(ray_rows(state.store), "Ray nodes", "ray")

    @work(exit_on_error=False, name="recorded incidents")
    async def _read(self, ref: ClusterRef) -> None:
        """Read the recordings of earlier runs, at most once a minute."""
        try:
            found = await in_thread(lambda: self._history.of(ref), "recorded incidents")
        finally:
            self._is_reading = False
        if ref == self.cockpit.store.ref:  # another cluster may be shown by now
            self._runs = found

    def forget(self) -> None:
        super().forget()
        self._runs, self._read_s = [], -math.inf
