"""cockpit's alert rules as a file that Prometheus or its operator loads."""

from __future__ import annotations

from cockpit.alerts.prometheus_rules import (
    AlertRule,
    alert_rules,
    prometheus_duration,
    recordings,
)
from cockpit.insight.detectors.thresholds import Thresholds

GROUP_INTERVAL_S = 10
HEAD = """\
# cockpit's alerts as rules of Prometheus. Written by `cockpit config rules`: your own thresholds,
# of [alerts] in the configuration, are in what it prints.
"""


def text(limits: Thresholds, wrapped: bool = False) -> str:
    """The rules as YAML: a rule file, or `wrapped` as a PrometheusRule of the operator."""
    import yaml

    every = f"{GROUP_INTERVAL_S}s"
    groups = [
        {
            "name": "cockpit-recordings",
            "interval": every,
            "rules": [{"record": rule.record, "expr": rule.expr} for rule in recordings()],
        },
        {
            "name": "cockpit-alerts",
            "interval": every,
            "rules": [_plain(rule) for rule in alert_rules(limits)],
        },
    ]
    made: dict[str, object] = {"groups": groups}
    if wrapped:
        made = {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {"name": "cockpit", "labels": {"release": "prometheus"}},
            "spec": made,
        }
    dumped = yaml.safe_dump(made, sort_keys=False, width=100, allow_unicode=True)
    return f"{HEAD}{dumped}"


def _plain(rule: AlertRule) -> dict[str, object]:
    made: dict[str, object] = {"alert": rule.kind, "expr": rule.expr}
    if rule.for_s:
        made["for"] = prometheus_duration(rule.for_s)
    made["labels"] = {"severity": rule.severity.value}
    made["annotations"] = {"summary": rule.summary, "description": rule.todo}
    return made
