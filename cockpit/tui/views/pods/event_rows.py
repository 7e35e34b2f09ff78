"""Events, newest first: notices, drills, attempts, marks."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest

from cockpit.format import in_seconds
from cockpit.model.text import one_line
from cockpit.store.attempt_events import attempt_events
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run
from cockpit.store.store import Store
from cockpit.tui.keys import shown_key
from cockpit.tui.rows.text import clock, run_status, run_style
from cockpit.tui.widgets.table.table import Cell, Column, Row

EVENT_COLUMNS = (
    Column("time", "TIME", width=8),
    Column("object", "OBJECT"),
    Column("what", "WHAT"),
    Column("message", "MESSAGE", min_width=10, grow=1),
)
SHOWN = 300


def no_events() -> str:
    """The text without an event."""
    return f"No events yet: nothing has changed. Press {shown_key('mark')} to mark this moment."


class EventRows:
    """Updates them only when something has happened."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._of: tuple[object, ...] = ()

    def rows(self, store: Store, limit: int = SHOWN) -> list[Row]:
        of = _newest(store)
        if of != self._of:
            self._of, self._rows = of, event_rows(store, limit)
        return self._rows


def _newest(store: Store) -> tuple[object, ...]:
    """Differs whenever the rows do."""
    run = current_run(store)
    attempts = tuple(
        (a.started_s, a.ended_s, a.reason, a.first_step, len(a.placements))
        for a in (run.attempts.values() if run else ())
    )
    newest = store.notices[-1] if store.notices else None
    return (
        len(store.notices),
        newest and (id(newest), newest.at_s),
        len(store.drills),
        store.drills[-1] if store.drills else None,
        len(store.marks),
        run and (run.id, run.ended_s, run.message, run.state),
        attempts,
    )


def event_rows(store: Store, limit: int = SHOWN) -> list[Row]:
    rows = []
    found = nlargest(limit, enumerate(_events(store)), key=lambda item: (item[1][0], item[0]))
    for number, (at_s, name, reason, message, style) in found:
        cells = (
            Cell(clock(at_s), "muted"),
            Cell(name),
            Cell(reason, style),
            Cell(one_line(message)),
        )
        rows.append(Row(f"{at_s:.3f} {number} {name} {reason}", cells))
    return rows


def _events(store: Store) -> Iterator[tuple[float, str, str, str, str]]:
    """(when, object, reason, message, style of the reason)."""
    for notice in store.notices:
        style = "warning" if notice.warning else "muted"
        yield notice.at_s, notice.name, notice.reason, notice.message, style
    for drill in store.drills:
        hit = ", ".join(map(str, drill.ranks))
        message = drill.fault
        if drill.grace_s > 0:
            message += f", grace {in_seconds(drill.grace_s)}"
        if hit:
            message += f", hit rank {hit}"
        yield drill.injected_s, drill.target, "Drill", message, "accent"
    for mark in store.marks:
        yield mark.at_s, "you", "Mark", mark.text, "accent"
    run = current_run(store)
    if run is None:
        return
    for event in attempt_events(run):
        style = "warning" if event.warning else "good"
        yield event.at_s, run.name or run.id, f"Attempt {event.number}", event.message, style
    if run.ended_s is not None and run.state.is_over:
        yield run.ended_s, run.name or run.id, "Run", _end(run), run_style(run)


def _end(run: RunView) -> str:
    return f"{run_status(run)}: {run.message}" if run.message else run_status(run)
