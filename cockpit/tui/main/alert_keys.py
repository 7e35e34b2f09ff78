"""The main screen's actions on alerts: acknowledge and snooze."""

from __future__ import annotations

from cockpit.model.event import AlertHandled
from cockpit.tui.main.current_view import Viewing

SNOOZES = {"snooze": 15 * 60.0, "snooze_long": 60 * 60.0}
"""Seconds of snooze by action."""


class Alerting(Viewing):
    """Acknowledging an alert is an event like any other, and the store shows it."""

    def action_acknowledge(self) -> None:
        self._handle(None)

    def action_acknowledge_all(self) -> None:
        from cockpit.tui.views.alerts.view import AlertsView

        if not isinstance(self.view, AlertsView):
            return
        for alert_id, view in self.cockpit.store.alerts.items():
            if view.acknowledged_s is None:
                self._dispatch(alert_id, None)

    def action_snooze(self) -> None:
        self._handle(SNOOZES["snooze"])

    def action_snooze_long(self) -> None:
        self._handle(SNOOZES["snooze_long"])

    def _handle(self, silence_s: float | None) -> None:
        from cockpit.tui.views.alerts.view import AlertsView

        if not isinstance(self.view, AlertsView):
            return
        view = self.view.chosen()
        if view is None or view.cleared_s is not None:
            text = "There is no alert." if view is None else "This alert is already cleared."
            self.cockpit.notify(text, timeout=3, markup=False)
            return
        self._dispatch(view.alert.id, silence_s)

    def _dispatch(self, alert_id: str, silence_s: float | None) -> None:
        session, now_s = self.cockpit.session, self.cockpit.now_s
        if session is not None:
            until_s = None if silence_s is None else now_s + silence_s
            session.dispatch(
                AlertHandled(at_s=now_s, source="user", alert_id=alert_id, snoozed_until_s=until_s)
            )
