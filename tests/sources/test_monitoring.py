"""Prometheus and Grafana accept the bundled files, whose queries name existing metrics."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cockpit.sources.prometheus import dcgm
from cockpit.sources.prometheus.api import Prometheus
from cockpit.sources.prometheus.settings import PrometheusSettings
from tests.sources.prometheus_server import PrometheusServer, need_prometheus
from training.telemetry.head.metrics import PREFIX, Meter

MANIFESTS = Path(__file__).parents[2] / "manifests"
FOLDER = MANIFESTS / "monitoring"
MONITOR = MANIFESTS / "kubernetes/components/monitoring/podmonitor.yaml"
RAYS_OWN = {
    "ray_node_cpu_utilization",
    "ray_node_mem_used",
    "ray_node_network_receive_speed",
    "ray_node_network_send_speed",
    "ray_node_gpus_utilization",
    "ray_node_gram_used",
    "ray_node_gpu_power_milliwatts",
}


class Dashboard:
    def __init__(self) -> None:
        self.raw: Any = json.loads((FOLDER / "grafana-dashboard.json").read_text())

    @property
    def panels(self) -> list[Any]:
        return [panel for panel in self.raw["panels"] if panel["type"] != "row"]

    @property
    def questions(self) -> list[str]:
        return [target["expr"] for panel in self.panels for target in panel["targets"]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    with PrometheusServer(tmp_path_factory.mktemp("prometheus")).running() as running:
        yield running


def names_of_telemetry() -> set[str]:
    """As Ray exports them."""
    gauges: list[str] = []
    counters: list[str] = []

    def gauge(name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        gauges.append(name)

    def counter(name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        counters.append(name)

    Meter(gauge, counter)
    assert all(name.startswith(PREFIX) for name in (*gauges, *counters))
    return {f"ray_{name}" for name in gauges} | {f"ray_{name}_total" for name in counters}


async def test_every_question_of_the_dashboard_is_promql(server: PrometheusServer) -> None:
    client = Prometheus(PrometheusSettings(server.url))
    for question in Dashboard().questions:
        assert await client.instant(question.replace("$run", ".*")) == (), question


def test_every_question_is_for_a_metric_that_exists() -> None:
    known = names_of_telemetry() | RAYS_OWN | {dcgm.SM_ACTIVE, dcgm.TENSOR_ACTIVE, dcgm.XID}
    asked = {
        name
        for question in Dashboard().questions
        for name in re.findall(r"\b(?:ray|DCGM)_\w+", question)
    }
    assert asked <= known
    assert asked >= RAYS_OWN


def test_rays_own_metrics_are_those_of_the_ray_that_is_installed() -> None:
    agent = pytest.importorskip("ray.dashboard.modules.reporter.reporter_agent")
    exported = {f"ray_{gauge.name}" for gauge in agent.METRICS_GAUGES.values()}
    assert exported >= RAYS_OWN


def test_no_two_panels_have_one_id_or_one_place() -> None:
    panels = Dashboard().raw["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_the_configuration_is_one_that_prometheus_takes() -> None:
    need_prometheus()
    done = subprocess.run(
        ["promtool", "check", "config", str(FOLDER / "prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pod_monitor_takes_the_pods_that_kuberay_makes() -> None:
    [monitor] = yaml.safe_load_all(MONITOR.read_text())
    assert monitor["kind"] == "PodMonitor"
    [wanted] = monitor["spec"]["selector"]["matchExpressions"]
    assert wanted == {"key": "ray.io/node-type", "operator": "In", "values": ["head", "worker"]}
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == "metrics"
