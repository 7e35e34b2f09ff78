"""The catalogue as rows: what can be broken here, and why the rest cannot. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from msgspec import Struct

from cockpit.drills.faults.catalog import faults, why_not
from cockpit.drills.faults.fault import Fault, Parameter
from cockpit.drills.gamedays.file import game_day, shipped
from cockpit.model.cluster import Capability
from cockpit.model.text import one_line
from cockpit.tui.widgets.table.table import Cell, Column, Row

FAULT_COLUMNS = (
    Column("fault", "FAULT"),
    Column("aim", "TARGETS", priority=4),
    Column("what", "WHAT IT DOES", min_width=44, grow=1, firm=True),
    Column("needs", "NEEDS", min_width=20, priority=5, firm=True),
    Column("undo", "END OF THE FAULT", min_width=28, priority=2),
    Column("here", "HERE", width=4, priority=1),
)
DAY_CELLS = 72
"""Of what a game day is for, about as much as the longest summary of a fault."""
DAY = "day:"
"""Before the name in the key of a game day's row."""
AVAILABLE, NOT_HERE = "yes", "no"
"""The reason is a sentence: it is shown in full below the table, for the selected row."""


def fault_rows(
    backend: str, rights: Mapping[str, Capability], refused: str = ""
) -> list[tuple[Fault, str, Row]]:
    """Each fault with why it is unavailable (empty: available) and its row, in the catalog's order.

    `refused`: why no change is allowed.
    """
    found = []
    for fault in faults():
        why = refused or why_not(fault, backend, rights)
        found.append((fault, why, _row(fault, why)))
    return found


class Day(Struct, frozen=True):
    """A game day that is shipped."""

    name: str
    about: str
    steps: tuple[str, ...]


@cache
def days() -> tuple[Day, ...]:
    found = [game_day(name) for name in shipped()]
    return tuple(Day(one.name, one.about, tuple(s.name for s in one.steps)) for one in found)


def day_rows(refused: str = "") -> list[tuple[Day, Row]]:
    """The game days, after the faults."""
    style = "muted" if refused else ""
    return [
        (
            day,
            Row(
                f"{DAY}{day.name}",
                (
                    Cell(day.name, style or "bold accent"),
                    Cell("game day", "muted"),
                    Cell(one_line(day.about, DAY_CELLS), style),
                    Cell("", "muted"),
                    Cell(f"see its {len(day.steps)} steps", "muted"),
                    _here(refused),
                ),
                style,
            ),
        )
        for day in days()
    ]


def _row(kind: Fault, why: str) -> Row:
    return Row(
        kind.name,
        (
            Cell(kind.name, "muted" if why else "bold"),
            Cell(kind.aim.value, "muted"),
            Cell(kind.summary, "muted" if why else ""),
            Cell(", ".join(kind.needs), "muted"),
            Cell(kind.ending, "muted"),
            _here(why),
        ),
        "muted" if why else "",
    )


def _here(why: str) -> Cell:
    return Cell(NOT_HERE, "warning") if why else Cell(AVAILABLE, "good")


def parameters_text(parameters: Sequence[Parameter]) -> str:
    """Each with its default: `grace_s=30`."""
    return "  ".join(f"{one.name}={default_text(one)}" for one in parameters)


def default_text(parameter: Parameter) -> str:
    """As it can be typed again."""
    value = parameter.default
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
