"""Alerts, notices and cluster events, bounded."""

from __future__ import annotations

from cockpit.report.document import Block, Column, Kind, Section, Table, Value
from cockpit.report.time_range import Extent, extent
from cockpit.store.run import RunView
from cockpit.store.store import AlertView, Store

ALERTS_SHOWN = 60
EVENTS_SHOWN = 120
BEFORE_S = 300.0
"""Notices from so long before the run's start show what it started on."""
AFTER_S = 120.0


def alerts(store: Store, run: RunView) -> Section:
    views = [
        view
        for view in (*store.alerts_past, *store.alerts.values())
        if view.alert.finding.run_id in ("", run.id)
    ]
    views.sort(key=lambda view: view.alert.raised_s)
    rows: list[tuple[Value, ...]] = [_alert(view) for view in views[-ALERTS_SHOWN:]]
    left_out = len(views) - len(rows)
    table = Table(
        "alerts",
        (
            Column("raised_s", Kind.MOMENT, "raised"),
            Column("cleared_s", Kind.MOMENT, "cleared"),
            Column("severity", Kind.LABEL),
            Column("subject", Kind.TEXT),
            Column("what", Kind.TEXT),
            Column("why", Kind.TEXT),
            Column("todo", Kind.TEXT, "what to try"),
        ),
        tuple(rows),
        note=f"{left_out:,} older ones are left out." if left_out else "",
    )
    return Section("alerts", "Alerts", (table,) if rows else ())


def _alert(view: AlertView) -> tuple[Value, ...]:
    found = view.alert.finding
    return (
        view.alert.raised_s,
        view.cleared_s,
        found.severity.value,
        found.subject,
        found.what,
        found.why,
        found.todo,
    )


def events(store: Store, run: RunView) -> Section:
    """Notices while the run was there, and the moments that the user marked."""
    when = extent(run)
    found: list[tuple[float, str, str, str, str, bool]] = [
        (n.at_s, n.kind, n.name, n.reason, n.message, n.warning)
        for n in store.notices
        if _is_within(n.at_s, when)
    ]
    found += [
        (marked.at_s, "User", "", "Marked", marked.text, False)
        for marked in store.marks
        if _is_within(marked.at_s, when)
    ]
    found.sort()
    kept = found
    if len(found) > EVENTS_SHOWN:
        # Warnings before the rest, the newest first; then in order of time again.
        ranked = sorted(found, key=lambda event: (event[5], event[0]), reverse=True)
        kept = sorted(ranked[:EVENTS_SHOWN])
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (at_s, "warning" if warning else "", kind, name, reason, message)
        for at_s, kind, name, reason, message, warning in kept
    )
    left_out = len(found) - len(kept)
    note = f"{left_out:,} of {len(found):,} are left out, warnings last." if left_out else ""
    columns = (
        Column("at_s", Kind.MOMENT, "at"),
        Column("severity", Kind.LABEL, ""),
        Column("kind", Kind.TEXT),
        Column("name", Kind.TEXT),
        Column("reason", Kind.TEXT),
        Column("message", Kind.TEXT),
    )
    blocks: tuple[Block, ...] = (Table("events", columns, rows, note=note),) if rows else ()
    return Section("events", "Events", blocks)


def _is_within(at_s: float, when: Extent) -> bool:
    return when.begin_s - BEFORE_S <= at_s <= when.end_s + AFTER_S
