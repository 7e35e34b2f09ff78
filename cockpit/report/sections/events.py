"""Alerts, notices and cluster events, bounded."""

from __future__ import annotations

from cockpit.report.document import Block, Column, Columns, Kind, Section, Table, Value, table
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
    shown = views[-ALERTS_SHOWN:]
    left_out = len(views) - len(shown)
    columns: Columns[AlertView] = (
        (Column("raised_s", Kind.MOMENT, "raised"), lambda view: view.alert.raised_s),
        (Column("cleared_s", Kind.MOMENT, "cleared"), lambda view: view.cleared_s),
        (Column("severity", Kind.LABEL), lambda view: view.alert.finding.severity.value),
        (Column("subject", Kind.TEXT), lambda view: view.alert.finding.subject),
        (Column("what", Kind.TEXT), lambda view: view.alert.finding.what),
        (Column("why", Kind.TEXT), lambda view: view.alert.finding.why),
        (Column("todo", Kind.TEXT, "what to try"), lambda view: view.alert.finding.todo),
    )
    note = f"{left_out:,} older ones are left out." if left_out else ""
    blocks = (table("alerts", columns, shown, note=note),) if shown else ()
    return Section("alerts", "Alerts", blocks)


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
    note = (
        f"{left_out:,} of {len(found):,} are omitted; warnings are kept first." if left_out else ""
    )
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
