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
from tests.sources.prometheus_server import (
    Exporter,
    PrometheusServer,
    Sample,
    need_prometheus,
)
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

NODES = {"node-1", "node-2"}


class Dashboard:
    def __init__(self) -> None:
        self.raw: Any = json.loads((FOLDER / "grafana-dashboard.json").read_text())

    @property
    def panels(self) -> list[Any]:
        return [panel for panel in self.raw["panels"] if panel["type"] != "row"]

    @property
    def variables(self) -> list[Any]:
        listed: list[Any] = self.raw["templating"]["list"]
        return listed

    @property
    def questions(self) -> list[str]:
        return [target["expr"] for panel in self.panels for target in panel["targets"]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    with PrometheusServer(tmp_path_factory.mktemp("prometheus")).running() as running:
        yield running


def names_of_telemetry() -> dict[str, tuple[str, ...]]:
    """The tags of each metric, by its name as Ray exports it."""
    found: dict[str, tuple[str, ...]] = {}

    def gauge(name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        found[f"ray_{name}"] = tag_keys

    def counter(name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        found[f"ray_{name}_total"] = tag_keys

    Meter(gauge, counter)
    assert all(name.startswith(f"ray_{PREFIX}") for name in found)
    return found


def scraped(large: bool, hostname: str) -> list[Sample]:
    """Every metric that the dashboard may ask for, of a run of two ranks, or of a large one.

    `hostname` is the label of dcgm-exporter for the node, which differs by its release.
    """
    ranks = ("min", "mean", "max") if large else ("0", "1")
    samples = []
    for name, tags in names_of_telemetry().items():
        labels = {"run": "ab12", "name": "digits"}
        for more in [{"rank": rank} for rank in ranks] if "rank" in tags else [{}]:
            samples.append(Sample(name, {**labels, **more}, 1.0))
    samples += [Sample(name, {"ip": "10.0.0.1", "GpuIndex": "0"}, 1.0) for name in RAYS_OWN]
    for name in (dcgm.SM_ACTIVE, dcgm.TENSOR_ACTIVE, dcgm.XID):
        for node in NODES:
            samples.append(Sample(name, {hostname: node, "gpu": "0"}, 79.0))
    return samples


async def test_every_question_of_the_dashboard_is_promql(server: PrometheusServer) -> None:
    client = Prometheus(PrometheusSettings(server.url))
    for question in Dashboard().questions:
        assert await client.instant(question.replace("$run", ".*")) == (), question


@pytest.mark.parametrize(("large", "hostname"), [(False, "Hostname"), (True, "hostname")])
async def test_every_question_of_the_dashboard_has_an_answer(
    tmp_path: Path, large: bool, hostname: str
) -> None:
    with Exporter(scraped(large, hostname)).serve() as exporter:
        targets = [f"127.0.0.1:{exporter.port}"]
        with PrometheusServer(tmp_path, targets).running() as running:
            running.await_series(dcgm.XID)
            client = Prometheus(PrometheusSettings(running.url))
            for question in Dashboard().questions:
                found = await client.instant(question.replace("$run", "ab12"))
                assert found, question
                if "DCGM" in question:
                    assert {curve.labels.get(hostname) for curve in found} == NODES, question
            [runs] = [each["definition"] for each in Dashboard().variables if "definition" in each]
            metric = runs.removeprefix("label_values(").partition(",")[0]
            assert await client.instant(f"group by (run) ({metric})")


def test_every_question_is_for_a_metric_that_exists() -> None:
    known = names_of_telemetry().keys() | RAYS_OWN | {dcgm.SM_ACTIVE, dcgm.TENSOR_ACTIVE, dcgm.XID}
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


@pytest.mark.parametrize("name", ["prometheus.yml", "kubernetes.yml"])
def test_the_configuration_is_one_that_prometheus_takes(name: str, tmp_path: Path) -> None:
    """Without the service discovery of Kubernetes, which Debian's program does not have."""
    need_prometheus()
    config = yaml.safe_load((FOLDER / name).read_text())
    for scraped in config["scrape_configs"]:
        scraped.pop("kubernetes_sd_configs", None)
    (tmp_path / name).write_text(json.dumps(config))
    for rules in config.get("rule_files", ()):
        (tmp_path / rules).write_text((FOLDER / rules).read_text())
    done = subprocess.run(
        ["promtool", "check", "config", str(tmp_path / name)],
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


def test_service_monitors_take_the_services_of_the_exporter_and_of_the_operator() -> None:
    monitors = list(yaml.safe_load_all(MONITOR.with_name("servicemonitor.yaml").read_text()))
    exporter = list(yaml.safe_load_all((FOLDER / "dcgm" / "exporter.yaml").read_text()))
    [service] = [each for each in exporter if each["kind"] == "Service"]
    [dcgm_monitor, _] = monitors
    assert dcgm_monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    [endpoint] = dcgm_monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}


@pytest.mark.parametrize(
    ("labels", "runs"),
    [
        ({"nvidia.com/gpu.present": "true"}, True),
        ({"kubernetes.azure.com/accelerator": "nvidia"}, True),
        ({"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"}, True),
        ({"nvidia.com/gpu.present": "false"}, False),
        ({"kubernetes.io/os": "linux"}, False),
    ],
)
def test_exporter_runs_on_gpu_nodes_only(labels: dict[str, str], runs: bool) -> None:
    daemon, _ = yaml.safe_load_all((FOLDER / "dcgm" / "exporter.yaml").read_text())
    pod = daemon["spec"]["template"]["spec"]
    assert "nodeSelector" not in pod, "it would have to match too"
    affinity = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    wanted = [term["matchExpressions"] for term in affinity["nodeSelectorTerms"]]
    assert {each["operator"] for term in wanted for each in term} == {"In"}
    found = any(all(labels.get(e["key"]) in e["values"] for e in term) for term in wanted)
    assert found is runs


def test_exporter_has_the_fields_that_cockpit_and_the_dashboard_read() -> None:
    lines = (FOLDER / "dcgm" / "counters.csv").read_text().splitlines()
    fields = {line.partition(",")[0] for line in lines if not line.startswith("#")}
    assert {*dcgm.NAMES} <= fields


def test_grafana_finds_the_dashboard_and_the_data_source_that_are_provisioned() -> None:
    grafana = list(yaml.safe_load_all((FOLDER / "kubernetes" / "grafana.yaml").read_text()))
    [container] = grafana[1]["spec"]["template"]["spec"]["containers"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    [provider] = yaml.safe_load((FOLDER / "grafana" / "dashboards.yaml").read_text())["providers"]
    assert mounts[provider["options"]["path"]]["name"] == "dashboards"
    [source] = yaml.safe_load((FOLDER / "grafana" / "datasources.yaml").read_text())["datasources"]
    prometheus = list(yaml.safe_load_all((FOLDER / "kubernetes" / "prometheus.yaml").read_text()))
    [service] = [each for each in prometheus if each["kind"] == "Service"]
    [port] = service["spec"]["ports"]
    assert source["url"] == f"http://{service['metadata']['name']}:{port['port']}"
