"""A session that is watched for long: it looks for trouble, and a flight recorder listens.

Whoever owns the session calls `drain` as of any other, and finds alerts in its store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cockpit.alerts.monitor import AlertWatch
from cockpit.alerts.settings import AlertSettings
from cockpit.backends.protocol import Backend
from cockpit.model.event import Event
from cockpit.model.run import RunSummary
from cockpit.recorder.writing.run_recorders import RunRecorders
from cockpit.session.session import Session, Source

SUMMARISE_EVERY_S = 10.0
"""What a recording says of its run is then no older, should cockpit be killed."""


class WatchedSession(Session):
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
        heard: Callable[[Event], None] | None = None,
        asked: Callable[[], None] | None = None,
    ) -> None:
        def hear(event: Event) -> None:
            if heard is not None:
                heard(event)
            if recording is not None:
                recording.heard(event)

        super().__init__(backend, sources, clock=clock, heard=hear, asked=asked)
        self.recording = recording
        self._alerts = AlertWatch(self.dispatch, lambda: self.store, alerts, past, clock)
        self._summarised_s = clock()

    @property
    def alerts(self) -> AlertWatch:
        """Who looks for trouble: its settings, and the recorded runs that it compares with."""
        return self._alerts

    def drain(self) -> bool:
        changed = super().drain()
        now_s = self.clock()
        self._alerts.look(now_s)
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
