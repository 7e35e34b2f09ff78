"""The diagnosis of the run on the screen, computed once a second for every view that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cockpit.insight.metrics.diagnosis import Diagnosis
    from cockpit.session.session import Session
    from cockpit.store.run import RunView
    from cockpit.tui.view_state import ViewState


class DiagnosisCache:
    """Summing up hours of a run takes milliseconds; the screen is drawn ten times a second."""

    def __init__(self) -> None:
        self._key: tuple[int, int, str, int] | None = None
        self._found: Diagnosis | None = None

    def of(self, state: ViewState, run: RunView, session: Session | None) -> Diagnosis:
        """By the session's own thresholds and recorded runs, where it watches for alerts."""
        from cockpit.alerts.monitor import AlertMonitor  # not before there is a run to diagnose
        from cockpit.insight.metrics.diagnosis import diagnosis

        key = (id(session), id(state.store), run.id, int(state.now_s))
        if self._found is None or key != self._key:
            watch = getattr(session, "alerts", None)
            self._found = (
                diagnosis(
                    state.store,
                    run,
                    state.now_s,
                    watch.past_of(run),
                    watch.settings.limits,
                    watch.settings.prices,
                )
                if isinstance(watch, AlertMonitor)
                else diagnosis(state.store, run, state.now_s)
            )
            self._key = key
        return self._found
