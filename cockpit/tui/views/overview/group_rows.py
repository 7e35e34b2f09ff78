"""Worker groups as rows."""

from __future__ import annotations

from cockpit.model.cluster import WorkerGroup
from cockpit.model.text import one_line
from cockpit.store.store import Store
from cockpit.tui.widgets.table.table import Cell, Column, Row

GROUP_COLUMNS = (
    Column("group", "GROUP", min_width=6, grow=1),
    Column("desired", "WANT", width=4, align="right"),
    Column("ready", "READY", width=5, align="right"),
    Column("min", "MIN", width=4, align="right", priority=1),
    Column("max", "MAX", width=4, align="right", priority=1),
    Column("note", "NOTE", min_width=24, grow=2, priority=2),
)


def group_rows(store: Store) -> list[Row]:
    rows = []
    for group in store.groups.values():
        short = group.ready < group.desired
        rows.append(
            Row(
                group.name,
                (
                    Cell(_name(group)),
                    Cell(str(group.desired)),
                    Cell(str(group.ready), "warning" if short else "good"),
                    Cell(str(group.min), "muted"),
                    Cell(str(group.max), "muted"),
                    Cell(one_line(group.note), "warning"),
                ),
            )
        )
    return rows


def _name(group: WorkerGroup) -> str:
    """With special properties: multi-host replicas, an autoscaler, a suspended group."""
    more = [f"{group.hosts} hosts"] if group.hosts > 1 else []
    more += ["auto"] if group.autoscaled else []
    more += ["suspended"] if group.suspended else []
    return f"{group.name} ({', '.join(more)})" if more else group.name
