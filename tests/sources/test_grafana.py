from __future__ import annotations

import json
from pathlib import Path

from cockpit.model.cluster import DashboardRoute
from cockpit.model.tracking import RunRef
from cockpit.sources.ray.answers import GrafanaPlace
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.grafana import DASHBOARD, page_of
from tests.sources.raw_server import RawServer, http

MANIFEST = Path(__file__).parents[2] / "manifests/monitoring/grafana-dashboard.json"


async def place_of(status: int, data: dict[str, object]) -> GrafanaPlace | None:
    body = json.dumps({"result": status == 200, "msg": "", "data": data}).encode()
    async with (
        RawServer(lambda _: http(status, body)).serve() as server,
        Dashboard(DashboardRoute(server.url)) as dashboard,
    ):
        return await dashboard.grafana()


async def test_rays_own_word_on_grafana_is_read() -> None:
    uids = {"default": "rayDefaultDashboard", "train": "rayTrainDashboard"}
    said: dict[str, object] = {"grafanaHost": "http://grafana:3000/", "dashboardUids": uids}
    assert await place_of(200, said) == GrafanaPlace("http://grafana:3000", uids)


async def test_without_grafana_there_is_no_place() -> None:
    assert await place_of(500, {}) is None
    assert await place_of(200, {"grafanaHost": "DISABLED"}) is None


def test_a_run_has_a_page_from_its_beginning_to_its_end() -> None:
    place = GrafanaPlace("http://grafana:3000", {})
    link = "http://grafana:3000/d/cockpit-train?var-run=ab12"
    assert page_of(place, RunRef("ab12")) == link
    assert page_of(place, RunRef("ab12", started_s=1.5)) == f"{link}&from=1500&to=now"
    ended = RunRef("ab12", started_s=1.5, ended_s=2.0)
    assert page_of(place, ended) == f"{link}&from=1500&to=2000"
    assert json.loads(MANIFEST.read_text())["uid"] == DASHBOARD
