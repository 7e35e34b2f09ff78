"""When to ring."""

from __future__ import annotations

from collections.abc import Mapping

from cockpit.insight.detectors.hysteresis import is_at_least
from cockpit.model.alert import Severity
from cockpit.store.store import AlertView


def is_quiet(view: AlertView, now_s: float) -> bool:
    """The user acknowledged or snoozed the alert, and its severity has not increased since."""
    if view.acknowledged_s is None or view.acknowledged_s < view.alert.raised_s:
        return False
    if view.snoozed_until_s is not None:
        return now_s < view.snoozed_until_s
    return True


def loud(alerts: Mapping[str, AlertView], now_s: float) -> dict[str, Severity]:
    """Return the alerts that ring, by id, each with its severity."""
    return {
        key: view.alert.finding.severity
        for key, view in alerts.items()
        if is_at_least(view.alert.finding.severity, Severity.WARNING) and not is_quiet(view, now_s)
    }


def new_or_worse(before: Mapping[str, Severity], after: Mapping[str, Severity]) -> list[str]:
    """The ids of the alerts to ring for; each as `loud` gives it."""
    return [key for key, severity in after.items() if _is_new(key, severity, before)]


def _is_new(key: str, severity: Severity, before: Mapping[str, Severity]) -> bool:
    earlier = before.get(key)
    return earlier is None or (earlier is not severity and is_at_least(severity, earlier))
