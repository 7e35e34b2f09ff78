"""Worker groups as rows."""

from __future__ import annotations

from cockpit.store.store import Store
from cockpit.tui.widgets.table import Cell, Column, Row

GROUP_COLUMNS = (
    Column("group", "GROUP", min_width=6, grow=1),
    Column("desired", "WANT", width=4, align="right"),
    Column("ready", "READY", width=5, align="right"),
    Column("min", "MIN", width=4, align="right", priority=1),
    Column("max", "MAX", width=4, align="right", priority=1),
)


def group_rows(store: Store) -> list[Row]:
    rows = []
    for group in store.groups.values():
        short = group.ready < group.desired
        rows.append(
            Row(
                group.name,
                (
                    Cell(group.name),
                    Cell(str(group.desired)),
                    Cell(str(group.ready), "warning" if short else "good"),
                    Cell(str(group.min), "muted"),
                    Cell(str(group.max), "muted"),
                ),
            )
        )
    return rows
