"""Requests and latency of Ray Serve's deployments, through Prometheus.

Serve's metrics (ray/serve/_private/replica.py, 2.60) have the labels `application` and
`deployment`. Ray exports them with the prefix `ray_`, counters with the suffix `_total`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from cockpit.model.serve import ServeLoad
from cockpit.model.text import one_line
from cockpit.sources.prometheus.api import Curve

REQUESTS = "ray_serve_deployment_request_counter_total"
ERRORS = "ray_serve_deployment_error_counter_total"
LATENCY = "ray_serve_deployment_processing_latency_ms_bucket"
WINDOW = "1m"
_BY = "application, deployment"


def query(selector: str) -> str:
    """One question for all: the label `what` names the number."""

    def rate(name: str, by: str = _BY) -> str:
        series = f"{name}{{{selector}}}" if selector else name
        return f"sum by ({by}) (rate({series}[{WINDOW}]))"

    buckets = rate(LATENCY, f"{_BY}, le")
    parts = {
        "requests_per_s": rate(REQUESTS),
        "errors_per_s": rate(ERRORS),
        "p50_s": f"histogram_quantile(0.5, {buckets}) / 1000",
        "p99_s": f"histogram_quantile(0.99, {buckets}) / 1000",
    }
    return " or ".join(
        f'label_replace({part}, "what", "{name}", "", "")' for name, part in parts.items()
    )


def loads(curves: Iterable[Curve]) -> tuple[ServeLoad, ...]:
    """By application and deployment. Without a request in the window, a quantile is NaN."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for curve in curves:
        labels, value = curve.labels, curve.values[0]
        key = labels.get("application", ""), labels.get("deployment", "")
        numbers = found.setdefault(key, {})
        if math.isfinite(value) and labels.get("what") in ServeLoad.__struct_fields__[2:]:
            numbers[labels["what"]] = value
    return tuple(
        ServeLoad(one_line(app), one_line(deployment), **numbers)
        for (app, deployment), numbers in sorted(found.items())
    )
