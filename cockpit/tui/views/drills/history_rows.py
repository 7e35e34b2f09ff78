"""Earlier drills as rows, the newest first. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cockpit import format
from cockpit.drills.faults.catalog import NAMES
from cockpit.drills.faults.catalog import fault as fault_named
from cockpit.drills.faults.fault import Aim
from cockpit.insight.recovery.drill_comparison import alike, compared
from cockpit.insight.recovery.measurement import is_settled, recovery
from cockpit.model.drill import Drill, DrillRecord, Recovery
from cockpit.model.text import one_line
from cockpit.store.store import Store
from cockpit.tui.rows.text import clock
from cockpit.tui.views.drills.current_drill import VERDICT_STYLES, is_going
from cockpit.tui.widgets.table.table import Cell, Column, Row

HISTORY_COLUMNS = (
    Column("when", "WHEN", width=8),
    Column("drill", "DRILL", min_width=10),
    Column("target", "TARGET", min_width=15, grow=1, priority=2, cut="middle"),
    Column("verdict", "VERDICT", width=8),
    Column("detected", "DETECTED", width=8, align="right", priority=4),
    Column("step", "NEW STEP", width=8, align="right"),
    Column("median", "MEDIAN", width=8, align="right", priority=3),
    Column("lost", "LOST", width=10, align="right", priority=1),
    Column("why", "WHY", min_width=16, grow=2, priority=5),
)
DAY_S = 86_400.0
MOST_RANKS = 4
FIRST_STEP = "first new step"
"""As `cockpit.insight.recovery.drill_comparison.numbers` calls it."""


class Past(Struct, frozen=True):
    """One drill that is over, or a kill by hand, which has no verdict."""

    key: str
    name: str
    at_s: float
    recoveries: tuple[Recovery, ...]
    record: DrillRecord | None = None
    earlier: tuple[DrillRecord, ...] = ()
    """Those of the same kind before it, the newest last."""

    @property
    def first_step_s(self) -> float | None:
        """Of several faults, the slowest recovery."""
        took = [r.first_step_s for r in self.recoveries if r.first_step_s is not None]
        return max(took, default=None)


class PastDrills:
    """Drills of the store and the records on disk.

    Completed drills are measured and compared once, since they do not change.
    """

    def __init__(self) -> None:
        self._cache: dict[str, tuple[Past, Row]] = {}
        self._records: frozenset[str] = frozenset()

    def all(
        self, store: Store, records: Sequence[DrillRecord], now_s: float
    ) -> list[tuple[Past, Row]]:
        """With their rows, the newest first."""
        kept = {one.id: one for one in records}
        kept |= {v.id: v.record for v in store.drilling.values() if v.record is not None}
        if kept.keys() != self._records:  # new drills may be earlier than known ones
            self._records = frozenset(kept)
            self._cache.clear()
        every = list(kept.values())
        found = [self._of_record(one, every) for one in every]
        shown = {*kept, *(view.id for view in store.drilling.values() if is_going(view))}
        for drill in store.drills:
            if drill.id.partition(".")[0] not in shown:
                found.append(self._by_hand(drill.id, store, recovery(store, drill)))
        return sorted(
            ((past, _dated(row, past.at_s, now_s)) for past, row in found),
            key=lambda one: -one[0].at_s,
        )

    def forget(self) -> None:
        self._cache.clear()

    def _of_record(self, record: DrillRecord, every: Sequence[DrillRecord]) -> tuple[Past, Row]:
        cached = self._cache.get(record.id)
        if cached is None:
            past = Past(
                record.id,
                record.name,
                record.began_s,
                record.recoveries,
                record,
                tuple(alike(record, every)),
            )
            cached = self._cache[record.id] = (past, _row(past))
        return cached

    def _by_hand(self, key: str, store: Store, measured: Recovery) -> tuple[Past, Row]:
        if (cached := self._cache.get(key)) is not None:
            return cached
        drill = measured.drill
        past = Past(key, drill.fault, drill.injected_s, (measured,))
        made = (past, _row(past))
        if is_settled(store, measured):
            self._cache[key] = made
        return made


def _row(past: Past) -> Row:
    record = past.record
    verdict = record.verdict if record is not None else None
    first = past.recoveries[0] if past.recoveries else None
    measures = compared(record, past.earlier) if record is not None else ()
    took = next((one for one in measures if one.name == FIRST_STEP), None)
    worse = took is not None and took.regression
    targets = ", ".join(dict.fromkeys(_hit(r.drill) for r in past.recoveries))
    return Row(
        past.key,
        (
            Cell(""),
            Cell(one_line(past.name, 60), "bold"),
            Cell(one_line(targets, 80)),
            Cell(verdict.value, VERDICT_STYLES[verdict]) if verdict else Cell("by hand", "muted"),
            Cell(format.duration(first.detected_s if first is not None else None)),
            Cell(format.duration(past.first_step_s), "bold bad" if worse else "bold"),
            Cell(format.duration(took.median if took is not None else None), "muted"),
            Cell(_lost(past.recoveries)),
            Cell(one_line(record.why, 200) if record is not None else "", "muted"),
        ),
    )


def _hit(drill: Drill) -> str:
    """A pod; of a fault that hits one process in it, the rank first."""
    if drill.fault not in NAMES or fault_named(drill.fault).aim is not Aim.RANK:
        return drill.target
    ranks = format.ranks(drill.ranks, MOST_RANKS)
    return f"{ranks} · {drill.target}" if drill.ranks else drill.target


def _dated(row: Row, at_s: float, now_s: float) -> Row:
    """With the time of day; of another day, how long ago."""
    text = clock(at_s) if now_s - at_s < DAY_S else f"{format.age(now_s - at_s)} ago"
    return row._replace(cells=(Cell(text, "muted"), *row.cells[1:]))


def _lost(recoveries: Sequence[Recovery]) -> str:
    lost = [r.steps_lost for r in recoveries if r.steps_lost is not None]
    return f"{sum(lost):,} steps" if lost else format.DASH
