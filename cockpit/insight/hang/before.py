"""What changed before a hang: events, drills, attempts, the newest checkpoint and marks."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit import format
from cockpit.insight.hang.types import Verdict
from cockpit.model.text import one_line
from cockpit.store.run import RunView
from cockpit.store.store import Store

WITHIN_S = 600.0
AFTER_S = 5.0
"""The clocks of sources differ, and a rank notices its own last progress a little late."""
MOST = 8
TEXT = 160


def changes(store: Store, run: RunView, found: Verdict) -> list[str]:
    """Return a line for each change, the oldest first: the newest MOST before the last progress."""
    since_s = found.at_s - found.idle_s
    known = [
        (at_s, text)
        for at_s, text in _all(store, run)
        if since_s - WITHIN_S <= at_s <= since_s + AFTER_S
    ]
    return [
        f"{format.duration(max(0.0, since_s - at_s))} before: {one_line(text, TEXT)}"
        for at_s, text in sorted(known)[-MOST:]
    ]


def _all(store: Store, run: RunView) -> Iterator[tuple[float, str]]:
    for notice in store.notices:
        if notice.kind == "Recording":  # cockpit's own
            continue
        yield notice.at_s, f"{notice.kind} {notice.name}: {notice.reason}: {notice.message}"
    for drill in store.drills:
        yield drill.injected_s, f"drill {drill.fault} on {drill.target}"
    for number, attempt in run.attempts.items():
        if attempt.started_s is not None:
            ranks = format.plural(len(attempt.placements), "rank")
            yield attempt.started_s, f"attempt {number} started with {ranks}"
    for at_s, checkpoint in run.checkpoints[-1:]:
        step = "" if checkpoint.step is None else f" of step {checkpoint.step:,}"
        yield at_s, f"checkpoint{step}"
    for view in (*store.alerts.values(), *store.alerts_past):
        if view.alert.finding.run_id in ("", run.id) and view.alert.finding.kind != "hang":
            yield view.alert.raised_s, f"alert {view.alert.finding.kind}: {view.alert.finding.what}"
    for mark in store.marks:
        yield mark.at_s, f"mark: {mark.text or 'no text'}"
