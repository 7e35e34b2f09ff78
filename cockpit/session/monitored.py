"""A session with alerts and a recorder, for the screen, `record` and drills."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cockpit.alerts.monitor import AlertMonitor
from cockpit.alerts.settings import AlertSettings
from cockpit.backends.protocol import Backend
from cockpit.model.run import RunSummary
from cockpit.recorder.writing.run_recorders import RunRecorders
from cockpit.session.session import Listener, Session, Source
from cockpit.sources.polling.interval import Pace

SUMMARISE_EVERY_S = 10.0
"""The summary in a recording is at most this old when cockpit is killed."""


class MonitoredSession(Session):
    """`recording` may be None: nothing is recorded. `past` are recorded runs to compare with."""

    def __init__(
        self,
        backend: Backend,
        sources: Callable[[], Sequence[Source]] = tuple,
        *,
        recording: RunRecorders | None = None,
        alerts: AlertSettings | None = None,
        past: Callable[[], Sequence[RunSummary]] = tuple,
        clock: Callable[[], float] = time.time,
        pace: Pace | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        if recording is not None:
            listeners = (*listeners, recording.on_event)
        super().__init__(backend, sources, clock=clock, pace=pace, listeners=listeners)
        self.recording = recording
        self._alerts = AlertMonitor(self.dispatch, lambda: self.store, alerts, past, clock)
        self._summarised_s = clock()

    @property
    def alerts(self) -> AlertMonitor:
        """The alert rules: their settings, and the recorded runs that they compare with."""
        return self._alerts

    def drain(self) -> bool:
        changed = super().drain()
        now_s = self.clock()
        self._alerts.check(now_s)
        is_new = 0 <= now_s - self._summarised_s < SUMMARISE_EVERY_S  # the clock may be set back
        if self.recording is not None and not is_new:
            self._summarised_s = now_s
            self.recording.summarise(self.store)
        return changed

    def close(self) -> None:
        super().close()
        self._alerts.close()
        if self.recording is not None:
            self.recording.close(self.store)
