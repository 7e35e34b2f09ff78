"""Check for problems once a second and raise alerts, for the UI and for verbs without one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Thread

from cockpit.alerts.hooks import Hooks
from cockpit.alerts.settings import AlertSettings
from cockpit.insight.detectors.findings import findings
from cockpit.insight.detectors.hysteresis import AlertState, is_at_least
from cockpit.insight.metrics.progress import LastUpdates
from cockpit.model.alert import Alert, Severity
from cockpit.model.clock import server_time
from cockpit.model.event import AlertCleared, AlertRaised, Event
from cockpit.model.run import RunSummary
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run
from cockpit.store.store import Store

CHECK_EVERY_S = 1.0

log = logging.getLogger(__name__)


class AlertMonitor:
    """`look` checks the current run and the jobs, and dispatches raised and cleared alerts.

    The owner of the store calls it between two calls of `drain`. `past` returns the recorded runs
    of all jobs. It is called once per run, on a thread since it reads files.
    """

    def __init__(
        self,
        dispatch: Callable[[Event], None],
        store: Callable[[], Store],
        settings: AlertSettings | None = None,
        past: Callable[[], Sequence[RunSummary]] = tuple,
        clock: Callable[[], float] = server_time,
    ) -> None:
        self.settings = settings or AlertSettings()
        self._dispatch, self._store, self._past = dispatch, store, past
        self._state, self._last_updates = AlertState(), LastUpdates()
        self._hooks = Hooks(self.settings.hooks, dispatch, clock)
        self._asked_for: str | None = None
        self._reader: Thread | None = None
        self._summaries: Sequence[RunSummary] = ()
        self._checked_s: float | None = None
        self._reported: dict[str, Alert] = {}
        self._worst: dict[str, Severity] = {}
        """By alert: the highest severity that hooks were called with."""

    def check(self, now_s: float) -> None:
        """Raise and clear alerts; nothing when the last check was less than a second ago."""
        if self._checked_s is not None and 0 <= now_s - self._checked_s < CHECK_EVERY_S:
            return
        self._checked_s = now_s
        store = self._store()
        run = current_run(store)
        limits = self.settings.limits
        past: Sequence[RunSummary] = ()
        if run is not None:
            self._last_updates.note(run, now_s)
            past = self.past_of(run)
        prices = self.settings.prices
        found = findings(store, run, now_s, past, limits, self._last_updates, prices)
        for event in self._state.update(store, run, found, now_s, limits):
            self._call_hooks(store, event)
            self._dispatch(event)

    def close(self) -> None:
        """Send the waiting alerts to the hooks, for at most two seconds."""
        self._hooks.close()

    def past_of(self, run: RunView) -> Sequence[RunSummary]:
        """Return the recorded runs that are read; the first call for a run starts the reading.

        One read at a time: the runs of a sweep may change faster than their recordings are read.
        """
        if self._asked_for != run.id and (self._reader is None or not self._reader.is_alive()):
            self._asked_for = run.id
            self._reader = Thread(target=self._read_past, name="cockpit-past", daemon=True)
            self._reader.start()
        return self._summaries

    def _read_past(self) -> None:
        try:
            self._summaries = tuple(self._past())
        except Exception:
            log.exception("recorded runs could not be read: there is nothing to compare with")

    def _call_hooks(self, store: Store, event: AlertRaised | AlertCleared) -> None:
        """Hooks are called when an alert is new, gets worse, or clears; not when numbers change."""
        if isinstance(event, AlertCleared):
            reported = self._reported.pop(event.alert_id, None)
            worst = self._worst.pop(event.alert_id, None)
            view = store.alerts.get(event.alert_id)
            alert = reported or (view.alert if view is not None else None)
            if alert is not None:
                self._hooks.notify(alert, cleared_s=event.at_s, worst=worst)
            return
        severity = event.alert.finding.severity
        if is_at_least(severity, self._worst.get(event.alert.id, severity)):
            self._worst[event.alert.id] = severity
        before = self._reported.get(event.alert.id)
        self._reported[event.alert.id] = event.alert
        if before is None or before.finding.severity is not severity:
            self._hooks.notify(event.alert)
