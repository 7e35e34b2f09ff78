"""The shipped Prometheus on a real cluster: it finds the pods, and a kill raises an alert.

Prometheus is built with its discovery of Kubernetes, which Debian's lacks. It is no pod, but it has
the configuration, the rules and the permissions of the shipped one.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from cockpit.cli.main import main
from cockpit.model.event import HistoryLoaded, PodTrafficListed
from cockpit.model.tracking import PodRefs, RunRef
from cockpit.session.monitored import monitored_session_on
from cockpit.sources.prometheus import network
from cockpit.sources.prometheus.settings import PrometheusSettings
from cockpit.sources.prometheus.source import PrometheusSource
from tests.cluster.build import program
from tests.cluster.fixtures import RealCluster, need_nightly
from tests.cluster.node import NAME as NODE
from tests.cluster.raycluster import STORAGE
from tests.local_cluster import LIGHT_FLAGS
from tests.manifests.kustomize import MONITORING, build, of_kind
from tests.page import between

ROOT = Path(__file__).parents[2]
PORT = 9091
BETWEEN_S = 15
"""The threshold of `stuck-start`, which is 120 s by default, in cockpit and in Prometheus."""
START_S, ALERT_S = 150.0, 180.0
ALERT = "stuck-start"
CREATED = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/monitoring/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}

# The parts in the other lanes: test_prometheus_rules.py in tests/alerts, test_monitoring.py and
# test_prometheus.py in tests/sources.
pytestmark = [pytest.mark.nightly, pytest.mark.ray]


@dataclass(frozen=True)
class Server:
    """Prometheus in the space of the cluster."""

    cluster: RealCluster

    @property
    def url(self) -> str:
        return f"http://{self.cluster.testbed.plane.space.address}:{PORT}"

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=20) as answer:
            return json.loads(answer.read())["data"]

    def series(self, expression: str) -> list[dict[str, str]]:
        """The labels of each."""
        found = self.ask(f"query?query={quote(expression)}")["result"]
        return [each["metric"] for each in found]

    def until(self, found: Callable[[], Any], timeout_s: float) -> Any:
        """The first true result."""
        deadline = time.monotonic() + timeout_s
        while not (result := found()):
            space = self.cluster.testbed.plane.space
            assert time.monotonic() < deadline, (self.errors(), space.said("prometheus"))
            time.sleep(0.5)
        return result

    def targets(self) -> dict[str, str]:
        """The health of each pod's target, by pod."""
        found = self.ask("targets?state=active")["activeTargets"]
        return {each["labels"]["pod"]: each["health"] for each in found if "pod" in each["labels"]}

    def errors(self) -> dict[str, str]:
        """Of the newest scrape, by its address; empty where it succeeded."""
        found = self.ask("targets?state=active")["activeTargets"]
        return {each["scrapeUrl"]: each["lastError"] for each in found}


def documented(name: str) -> list[Any]:
    """The YAML between the comments of that name in docs/monitoring.md."""
    block = between((ROOT / "docs" / "monitoring.md").read_text(), name)
    found: list[Any] = yaml.safe_load(block.removeprefix("```yaml\n").removesuffix("\n```"))
    return found


@pytest.fixture
def cockpit(
    ray_on_kubernetes: RealCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., str]:
    """A verb on the cluster, by a user with the address of Prometheus and a threshold."""
    ref = ray_on_kubernetes.ref
    (tmp_path / "cockpit").mkdir()
    url = Server(ray_on_kubernetes).url
    (tmp_path / "cockpit" / "config.toml").write_text(
        f'[prometheus]\nurl = "{url}"\n[alerts]\nbetween_s = {BETWEEN_S}\n'
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(ray_on_kubernetes.kubeconfig))

    def run(*argv: str) -> str:
        where = ("-n", ref.namespace, "--cluster", ref.name, "--context", ref.context)
        capsys.readouterr()
        code = main([*argv, *(() if argv[0] == "config" else where)])
        out, errors = capsys.readouterr()
        assert code == 0, errors
        return out

    return run


@pytest.fixture
def server(
    ray_on_kubernetes: RealCluster, cockpit: Callable[..., str], tmp_path: Path
) -> Iterator[Server]:
    """Prometheus as `kubectl apply -k manifests/monitoring` configures it, scraping more often."""
    need_nightly("prometheus")
    plane = ray_on_kubernetes.testbed.plane
    objects = build(MONITORING)
    made = []
    try:
        for role in of_kind(objects, "ClusterRole"):
            role["rules"] += documented("the rule of the kubelets")
        for kind, path in CREATED.items():
            for each in of_kind(objects, kind):
                plane.ask("POST", path, each)
                made.append(f"{path}/{each['metadata']['name']}")
        token = plane.ask("POST", f"{CREATED['ServiceAccount']}/prometheus/token", {"spec": {}})
        kubeconfig = yaml.safe_load(plane.kubeconfig.read_text())
        kubeconfig["users"][0]["user"] = {"token": token["status"]["token"]}
        (tmp_path / "kubeconfig").touch(mode=0o600)
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        [files] = [
            each["data"]
            for each in of_kind(objects, "ConfigMap")
            if each["metadata"]["name"].startswith("prometheus-")
        ]
        config = yaml.safe_load(files["prometheus.yml"])
        config["global"] = {"scrape_interval": "2s", "evaluation_interval": "2s"}
        [kubelets] = documented("the job of the kubelets")
        kubelets["authorization"]["credentials_file"] = str(tmp_path / "token")
        (tmp_path / "token").touch(mode=0o600)
        (tmp_path / "token").write_text(token["status"]["token"])
        config["scrape_configs"].append(kubelets)
        for scraped in config["scrape_configs"]:
            [found] = scraped["kubernetes_sd_configs"]
            found["kubeconfig_file"] = str(tmp_path / "kubeconfig")
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        (tmp_path / "rules.yml").write_text(cockpit("config", "rules"))
        space = plane.space
        space.start(
            "prometheus",
            [
                program("prometheus"),
                f"--config.file={tmp_path / 'prometheus.yml'}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address={space.address}:{PORT}",
            ],
        )
        running = Server(ray_on_kubernetes)
        deadline = time.monotonic() + START_S
        while not is_ready(running):
            assert space.alive("prometheus"), space.said("prometheus")
            assert time.monotonic() < deadline, space.said("prometheus")
            time.sleep(0.2)
        yield running
        space.stop("prometheus")
    finally:
        for path in reversed(made):
            plane.ask("DELETE", path)


def is_ready(server: Server) -> bool:
    try:
        with urllib.request.urlopen(f"{server.url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture
def two_workers(ray_on_kubernetes: RealCluster, cockpit: Callable[..., str]) -> Iterator[None]:
    cockpit("scale", "gpu", "2", "--yes")
    ray_on_kubernetes.wait_ready(2)
    yield
    cockpit("scale", "gpu", "1", "--yes")
    ray_on_kubernetes.wait_ready(1)


def test_traffic_of_pods_is_read_from_their_kubelets(
    ray_on_kubernetes: RealCluster, server: Server
) -> None:
    names = frozenset(pod["metadata"]["name"] for pod in ray_on_kubernetes.pods())
    server.until(lambda: server.series(f'{network.SENT}{{namespace="ml"}}'), START_S)

    async def pods() -> PodRefs:
        return PodRefs("ml", names)

    async def first() -> PodTrafficListed:
        settings = PrometheusSettings(server.url)
        async with aclosing(PrometheusSource(settings, pods=pods, poll_s=2.0).events()) as events:
            async for event in events:
                if isinstance(event, PodTrafficListed) and len(event.pods) == len(names):
                    return event
        raise AssertionError("the source has ended")

    found = asyncio.run(asyncio.wait_for(first(), START_S))
    assert {each.pod for each in found.pods} == names
    for each in found.pods:  # a head and its worker exchange messages all the time
        assert each.received_bytes_per_s, found
        assert each.sent_bytes_per_s, found


@pytest.mark.usefixtures("two_workers")
def test_prometheus_finds_the_pods_and_a_kill_without_room_for_a_new_pod_raises_an_alert(
    ray_on_kubernetes: RealCluster, server: Server, cockpit: Callable[..., str]
) -> None:
    pods = {pod["metadata"]["name"] for pod in ray_on_kubernetes.pods()}
    server.until(lambda: server.targets() == dict.fromkeys(pods, "up"), START_S)

    job = cockpit(
        *("launch", "checkpointed", "--workers", "2", "--yes", "--no-preflight"),
        *LIGHT_FLAGS,
        f"--set=storage_path={STORAGE}/monitored",
    ).split()[-1]
    try:
        of_cluster = '{namespace="ml",ray_io_cluster="demo"}'
        losses = server.until(
            lambda: server.series(f"ray_cockpit_train_loss{of_cluster} > 0"), START_S
        )
        assert {each["ray_io_group"] for each in losses} == {"headgroup"}
        assert not server.series('ALERTS{alertstate="firing"}')
        with monitored_session_on(ray_on_kubernetes.backend()) as session:
            assert session.wait(lambda store: len(store.pods) == 3, START_S)
            cockpit("cordon", NODE, "--yes")
            started_s = time.time() - 60
            victim = next(iter(pods - {losses[0]["pod"]}))
            pod = f"/api/v1/namespaces/ml/pods/{victim}?gracePeriodSeconds=0"
            ray_on_kubernetes.testbed.plane.ask("DELETE", pod)
            [firing] = server.until(
                lambda: server.series(f'ALERTS{{alertname="{ALERT}",alertstate="firing"}}'), ALERT_S
            )
            assert (firing["namespace"], firing["ray_io_cluster"]) == ("ml", "demo")
            assert firing["severity"] == "warning"
            alert = f"{ALERT}/run {firing['run']}"
            assert session.wait(lambda store: alert in store.alerts, ALERT_S), session.store.alerts
            state = session.store.sources["prometheus"]
            assert (state.ok, state.absent, state.error) == (True, False, "")
        found = {each["name"] for each in json.loads(cockpit("alerts", "-o", "json"))}
        assert alert in found
        # What cockpit reads of the time before it was started.
        run = RunRef(firing["run"], firing["name"], started_s, ended_s=time.time())
        loss = asyncio.run(history(server, run, "loss"))
        assert loss.times
        assert all(value > 0 for value in loss.values if value == value)

        cockpit("uncordon", NODE, "--yes")
        ray_on_kubernetes.wait_ready(2)
        server.until(lambda: not server.series('ALERTS{alertstate="firing"}'), START_S)
        after = {pod["metadata"]["name"] for pod in ray_on_kubernetes.pods()}
        assert victim not in after
        server.until(lambda: server.targets() == dict.fromkeys(after, "up"), START_S)
    finally:
        cockpit("uncordon", NODE, "--yes")
        cockpit("stop", job, "--yes")


async def history(server: Server, run: RunRef, metric: str) -> HistoryLoaded:
    """The curve of the run as cockpit's source reads it."""

    async def runs() -> list[RunRef]:
        return [run]

    async with aclosing(PrometheusSource(PrometheusSettings(server.url), runs).events()) as events:
        async for event in events:
            if isinstance(event, HistoryLoaded) and event.metric == metric:
                return event
    raise AssertionError(f"no curve of {metric}")
