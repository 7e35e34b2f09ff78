"""View 9: the machines (Kubernetes nodes) under the pods."""

from __future__ import annotations

from textual.app import ComposeResult

from cockpit.tui.main.titles import entitle
from cockpit.tui.rows.sort import heading
from cockpit.tui.view_state import Look
from cockpit.tui.views.nodes.rows import MACHINE_COLUMNS, machine_rows
from cockpit.tui.views.sorted_view import OrderedView
from cockpit.tui.widgets.table.table import LineTable


class MachinesView(OrderedView):
    NAME = "machines"
    KIND = "machine"
    DEFAULT_CSS = """
    MachinesView LineTable { height: 1fr; border-top: solid $border;
        border-title-color: $foreground; border-title-style: bold;
        border-title-background: $surface; }
    """

    def compose(self) -> ComposeResult:
        yield LineTable(MACHINE_COLUMNS, id="machines")

    def redraw(self, look: Look) -> None:
        table = self.query_one(LineTable)
        if not look.on_kubernetes:
            table.set_empty("A machine is what Kubernetes calls a node: this cluster has none.")
        elif why := self.cockpit.refusal("cordon"):
            table.set_empty(f"No machines are known. {why}")
        else:
            table.set_empty("No machines yet: waiting for Kubernetes.")
        found = machine_rows(look.store, look.now_s)
        shown = self.order.apply(found, MACHINE_COLUMNS)
        entitle(table, heading("Machines", len(shown), len(found), self.order))
        table.set_sort(self.order.by, self.order.down)
        table.set_rows(shown)
