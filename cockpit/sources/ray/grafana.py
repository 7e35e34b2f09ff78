"""Links into the Grafana that Ray was told of."""

from __future__ import annotations

from urllib.parse import urlencode

from cockpit.model.tracking import RunRef
from cockpit.sources.ray.answers import GrafanaPlace

DASHBOARD = "cockpit-train"
"""The uid of manifests/monitoring/grafana-dashboard.json."""


def page_of(place: GrafanaPlace, run: RunRef) -> str:
    """The run on our dashboard, from its beginning to its end or now. There once it is imported."""
    asked = {"var-run": run.id}
    if run.started_s is not None:
        asked["from"] = str(int(run.started_s * 1000))
        asked["to"] = "now" if run.ended_s is None else str(int(run.ended_s * 1000))
    return f"{place.url}/d/{DASHBOARD}?{urlencode(asked)}"
