"""The columns of ranks whose script tells nothing by step: what each of them reports."""

from __future__ import annotations

from cockpit import format
from cockpit.model.text import one_line
from cockpit.store.run import RunView
from cockpit.tui.rows.filter import Value
from cockpit.tui.terminal.cells import width_of
from cockpit.tui.views.ranks.columns import AGE, CHECKPOINT, NODE, POD, RANK, Field, RankLine
from cockpit.tui.widgets.table.table import Column

MOST = 6
"""A job may report hundreds of numbers."""


def reported_fields(run: RunView) -> tuple[Field, ...]:
    names = dict.fromkeys(name for rank in run.ranks.values() for name in rank.reported)
    return (RANK, POD, AGE, *map(_field, list(names)[:MOST]), CHECKPOINT, NODE)


def _field(name: str) -> Field:
    def value(line: RankLine) -> Value:
        return line.rank.reported.get(name)

    title = one_line(name, 16).upper()
    return Field(
        Column(f"reported {name}", title, width=max(9, width_of(title)), align="right"),
        value,
        lambda known: format.number(known if isinstance(known, float) else None),
        names=(name.replace(" ", "_").lower(),),
    )
