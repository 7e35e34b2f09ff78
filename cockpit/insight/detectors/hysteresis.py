"""Raise and clear alerts from findings, with hysteresis.

A finding that lasts `raise_after_s` (some kinds have another delay) is raised; an alert without a
finding for `clear_after_s` is cleared.

An active alert is updated when it gets worse, when it has been less severe for `clear_after_s`, and
at most every half minute when only its numbers change. When it gets worse its time of raising is
set again, so that users who acknowledged or snoozed it are notified again.

While a source is stale, none of its alerts is raised or cleared: the last state remains. The alerts
of a run are cleared when it is over, since it cannot be fixed any more; those of jobs are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from cockpit.insight.detectors.findings import WITHOUT_RUN, source_of, stale_source_names
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.model.alert import Alert, Finding, Severity
from cockpit.model.event import AlertCleared, AlertRaised
from cockpit.store.run import RunView
from cockpit.store.store import Store

SOURCE = "insight"
REPEATED_AFTER_S = 30.0
FLICKER_S = 3.0
"""A finding that is not raised yet may be absent for less than this without a restart of its delay.
"""
RAISE_AFTER_S = {
    "loss-nan": 0.0,
    "gpu-xid": 0.0,
    "gpu-ecc": 0.0,
    "hung-run": 0.0,
    "hang": 0.0,
    "loss-spike": 2.0,
    "loss-frozen": 0.0,
    "old-checkpoint": 0.0,
    "no-checkpoint": 0.0,
    "slow-start": 0.0,
    "stuck-start": 30.0,
    "failed-job": 0.0,
    "out-of-memory": 0.0,
    "silent-rank": 5.0,
    "straggler": 20.0,
    "slowed-rank": 60.0,
    "regression": 60.0,
    "slower-than-recorded": 60.0,
    "input-bound": 60.0,
    "comm-bound": 60.0,
    "checkpoint-bound": 60.0,
    "gpu-throttled": 30.0,
    "gpu-underused": 60.0,
    "gpu-memory": 60.0,
    "node-memory": 30.0,
    "node-disk": 30.0,
    "object-store": 60.0,
    "unused-gpus": 120.0,
    "poor-scaling": 60.0,
    "low-goodput": 60.0,
    "over-budget": 0.0,
}
"""Delays by kind, if one or two checks would be too quick or the usual delay too long.

Findings that already have a minimum duration are raised at once. A start that was stuck for lack of
a node may still be in progress when the node has arrived.
"""
CLEAR_AFTER_S = {"loss-spike": 120.0, "unused-gpus": 60.0, "silent-rank": 10.0}


class _Watched(Struct):
    """One finding: since when it is there, and when it was there last."""

    finding: Finding
    since_s: float
    seen_s: float
    reported: Finding | None = None
    """As it was raised last; None before."""
    reported_s: float = 0.0
    raised_s: float = 0.0
    severe_s: float = 0.0
    """When the finding was last as severe as it was reported."""

    def not_after(self, now_s: float) -> None:
        """The clock was set back: nothing waits until it is again where it was."""
        self.since_s, self.seen_s = min(self.since_s, now_s), min(self.seen_s, now_s)
        self.reported_s = min(self.reported_s, now_s)
        self.severe_s = min(self.severe_s, now_s)


def alert_id(finding: Finding) -> str:
    return f"{finding.kind}/{finding.subject}"


class AlertState(Struct):
    """The state between two updates, each with the findings of one run."""

    watched: dict[str, _Watched] = field(default_factory=dict)
    run_id: str = ""

    def update(
        self,
        store: Store,
        run: RunView | None,
        found: Sequence[Finding],
        now_s: float,
        limits: Thresholds,
    ) -> Iterator[AlertRaised | AlertCleared]:
        """Return the alerts that are raised and cleared now.

        The caller dispatches them to the store.

        Alerts of other origin in the store (a replay, an earlier update) are adopted.
        """
        self._take_over(store, now_s)
        for it in self.watched.values():
            it.not_after(now_s)
        over = run is None or run.state.is_over
        if run is None or over or run.id != self.run_id:
            self.run_id = run.id if run is not None else ""
            kept = [key for key, it in self.watched.items() if _is_of(it.finding, run)]
            for key in [key for key in self.watched if key not in kept]:
                yield from self._clear(key, now_s)
        stale = stale_source_names(store, now_s, limits)
        now = {
            alert_id(f): f
            for f in found
            if source_of(f.kind) not in stale and (not over or f.kind in WITHOUT_RUN)
        }
        for key, finding in now.items():
            yield from self._seen(key, finding, now_s, limits)
        for key in [key for key in self.watched if key not in now]:
            it = self.watched[key]
            if source_of(it.finding.kind) in stale and it.reported is not None:
                it.seen_s = max(it.seen_s, now_s)  # unknown is not absent
                continue
            after_s = _clear_after_s(it.finding, limits)
            if it.reported is None:
                after_s = FLICKER_S
            if now_s - it.seen_s >= after_s:
                yield from self._clear(key, now_s)

    def _seen(
        self, key: str, finding: Finding, now_s: float, limits: Thresholds
    ) -> Iterator[AlertRaised]:
        it = self.watched.get(key)
        if it is None:
            it = self.watched[key] = _Watched(finding, now_s, now_s)
        it.finding, it.seen_s = finding, now_s
        after_s = RAISE_AFTER_S.get(finding.kind, limits.raise_after_s)
        if it.reported is None:
            if now_s - it.since_s < after_s:
                return
            it.raised_s = now_s
        elif _RANKS[finding.severity] > _RANKS[it.reported.severity]:
            # Worse than when it was acknowledged or snoozed: raised again, so that the user is
            # notified.
            it.raised_s = now_s
        elif it.reported.severity is not finding.severity:
            # Around a threshold the severity changes at each look.
            if now_s - it.severe_s < _clear_after_s(finding, limits):
                return
        elif it.reported == finding or now_s - it.reported_s < REPEATED_AFTER_S:
            it.severe_s = now_s
            return
        it.reported, it.reported_s, it.severe_s = finding, now_s, now_s
        yield AlertRaised(at_s=now_s, source=SOURCE, alert=Alert(key, finding, it.raised_s))

    def _clear(self, key: str, now_s: float) -> Iterator[AlertCleared]:
        if self.watched.pop(key).reported is not None:
            yield AlertCleared(at_s=now_s, source=SOURCE, alert_id=key)

    def _take_over(self, store: Store, now_s: float) -> None:
        for key, view in store.alerts.items():
            if key not in self.watched:
                alert = view.alert
                self.watched[key] = _Watched(
                    alert.finding,
                    alert.raised_s,
                    now_s,
                    alert.finding,
                    now_s,
                    alert.raised_s,
                    now_s,
                )


def _clear_after_s(finding: Finding, limits: Thresholds) -> float:
    return CLEAR_AFTER_S.get(finding.kind, limits.clear_after_s)


def _is_of(finding: Finding, run: RunView | None) -> bool:
    """Whether the finding belongs to this run and the run is active, or to no run."""
    if finding.kind in WITHOUT_RUN:
        return True
    return run is not None and not run.state.is_over and finding.run_id in ("", run.id)


_RANKS = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}


def is_at_least(severity: Severity, least: Severity) -> bool:
    return _RANKS[severity] >= _RANKS[least]
