"""Alerts as rows: active ones, most severe first, then cleared ones."""

from __future__ import annotations

from cockpit import format
from cockpit.alerts.bell import is_quiet
from cockpit.model.alert import Severity
from cockpit.model.text import one_line
from cockpit.store.selectors import age_s
from cockpit.store.store import AlertView, Store
from cockpit.tui.widgets.table.table import Cell, Column, Row

ALERT_COLUMNS = (
    Column("severity", "SEVERITY", width=8),
    Column("state", "STATE", width=8),
    Column("since", "SINCE", width=5, align="right"),
    Column("lasted", "LASTED", width=7, align="right", priority=2),
    Column("kind", "KIND", min_width=9, priority=1),
    Column("subject", "SUBJECT", min_width=7, cut="middle"),
    Column("what", "WHAT", min_width=34, grow=1),
)
SEVERITY_STYLES = {
    Severity.CRITICAL: "bad",
    Severity.WARNING: "warning",
    Severity.INFO: "accent",
}
_ORDER = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}
_PAST = "past:"
PAST_SHOWN = 100


def alert_rows(store: Store, now_s: float) -> list[Row]:
    """The key of a row finds its alert again, see `alert_of`."""
    raised = sorted(
        store.alerts.values(),
        key=lambda view: (
            is_quiet(view, now_s),
            _ORDER[view.alert.finding.severity],
            view.alert.raised_s,
        ),
    )
    rows = [_row(view.alert.id, view, now_s) for view in raised]
    past = list(store.alerts_past)[-PAST_SHOWN:]
    return rows + [_row(past_key(view), view, now_s) for view in reversed(past)]


def past_key(view: AlertView) -> str:
    return f"{_PAST}{view.cleared_s}:{view.alert.id}"


def alert_of(store: Store, key: str | None) -> AlertView | None:
    if key is None:
        return None
    if not key.startswith(_PAST):
        return store.alerts.get(key)
    return next((view for view in store.alerts_past if past_key(view) == key), None)


def state_of(view: AlertView, now_s: float) -> str:
    """`raised`, `acked`, `snoozed` or `cleared`."""
    if view.cleared_s is not None:
        return "cleared"
    if not is_quiet(view, now_s):
        return "raised"
    if view.snoozed_until_s is None:
        return "acked"
    return "snoozed"


def _row(key: str, view: AlertView, now_s: float) -> Row:
    alert, finding = view.alert, view.alert.finding
    state = state_of(view, now_s)
    loud = state == "raised"
    style = SEVERITY_STYLES[finding.severity] if loud else "muted"
    end_s = view.cleared_s if view.cleared_s is not None else now_s
    # Only one run is watched: its long id would be equal in each row.
    of_run = finding.run_id and finding.subject == f"run {finding.run_id}"
    subject = "run" if of_run else one_line(finding.subject, 60)
    return Row(
        key,
        (
            Cell(finding.severity.value, f"bold {style}" if loud else style),
            Cell(state, "" if loud else "muted"),
            Cell(format.age(age_s(alert.raised_s, now_s)), "" if loud else "muted"),
            Cell(format.age(max(0.0, end_s - alert.raised_s)), "muted"),
            Cell(finding.kind, "" if loud else "muted"),
            Cell(subject, "" if loud else "muted"),
            Cell(one_line(finding.what, 300), "" if loud else "muted"),
        ),
    )
