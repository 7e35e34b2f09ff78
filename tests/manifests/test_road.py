"""From an empty Kubernetes cluster to a recovered run, by the commands of README, and back."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from cockpit.model.error import ExitCode
from tests.cluster.host_image import USER
from tests.cluster.testbed import Testbed
from tests.sources.mlflow_server import need_mlflow
from tests.sources.prometheus_server import need_prometheus

ROOT = Path(__file__).parents[2]
START_S, LEARN_S, END_S = 300.0, 900.0, 600.0
MODEL = "road-digits"
EPOCHS = 40
SHORT = (
    *("--set", f"epochs={EPOCHS}", "--set", "min_step_s=0.05"),
    *("--set", f"register_as={MODEL}", "--yes"),
)
"""Of the launch: a run that lasts for the kill, and then ends."""
LABEL = "app.kubernetes.io/managed-by=cockpit"

# Each part in the other lanes: tests/backends/provision/test_control_plane.py (up and down),
# tests/cluster/test_recovery.py, tests/alerts/test_prometheus_rules.py, and
# tests/training/test_mlflow_model.py.
pytestmark = [pytest.mark.nightly, pytest.mark.ray]


def readme_commands() -> list[list[str]]:
    """The three commands of the README for an empty cluster, as lists of arguments."""
    text = (ROOT / "README.md").read_text()
    [block] = re.findall(r"three\s+commands\s+create\s.*?```sh\n(.*?)```", text, re.DOTALL)
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert [words[:2] for words in commands] == [
        [".venv/bin/cockpit", verb] for verb in ("up", "launch", "kill")
    ]
    return [words[1:] for words in commands]


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


@dataclass(frozen=True)
class Cockpit:
    """The CLI in a process of its own, as a user runs it."""

    environment: Mapping[str, str]

    def run(self, *words: str, timeout_s: float = 600.0) -> str:
        """What it printed; the test fails with its errors if it fails."""
        done = self.start(*words)
        out, errors = done.communicate(timeout=timeout_s)
        assert done.returncode == 0, f"{words}: exit code {done.returncode}\n{errors}\n{out}"
        return out

    def read(self, *words: str) -> Any:
        return json.loads(self.run(*words, "-o", "json"))

    def poll(self, *words: str) -> Any:
        """The same; None while the cluster does not answer in time, as on a busy host."""
        done = self.start(*words, "-o", "json")
        out, errors = done.communicate(timeout=300)
        assert done.returncode in (0, ExitCode.UNREACHABLE), errors
        return json.loads(out) if done.returncode == 0 else None

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "cockpit", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(self.environment),
        )


@dataclass(frozen=True)
class Road:
    """An empty cluster with storage, and servers beside it that its pods reach."""

    testbed: Testbed
    cockpit: Cockpit
    folder: Path

    @property
    def mlflow(self) -> str:
        return f"http://{self.testbed.plane.space.address}:5000"

    @property
    def prometheus(self) -> str:
        return f"http://{self.testbed.plane.space.address}:9090"

    def ask(self, path: str) -> Any:
        return self.testbed.plane.ask("GET", path)

    def of_prometheus(self, path: str) -> Any:
        return get(f"{self.prometheus}/api/v1/{path}")["data"]

    def of_mlflow(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return get(f"{self.mlflow}/api/2.0/mlflow/{path}", body)


@pytest.fixture(scope="module")
def road(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Road]:
    need_prometheus()
    need_mlflow()
    folder = tmp_path_factory.mktemp("road")
    image = option(readme_commands()[0], "--image")
    testbed = Testbed.up(real=True, operator=True, images=(image,))
    try:
        yield Road(testbed, Cockpit(environment(testbed, folder)), folder)
    finally:
        ended = testbed.plane.space.ended()
        testbed.down()
    assert not ended


def environment(testbed: Testbed, folder: Path) -> dict[str, str]:
    """Of a user who has configured nothing but the addresses of both servers."""
    inherited = {name: text for name, text in os.environ.items() if "MLFLOW" not in name}
    address = testbed.plane.space.address
    (folder / "cockpit").mkdir()
    (folder / "cockpit" / "config.toml").write_text(
        f'[mlflow]\nuri = "http://{address}:5000"\n[prometheus]\nurl = "http://{address}:9090"\n'
    )
    folders = {"XDG_CONFIG_HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    return {**inherited, **folders, "KUBECONFIG": str(testbed.kubeconfig)}


def add_storage(testbed: Testbed) -> None:
    """The default storage class, with one volume that several pods can mount."""
    shared = testbed.plane.space.folder / "shared"
    shared.mkdir()
    os.chown(shared, USER, USER)
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    testbed.plane.ask(
        "POST",
        "/apis/storage.k8s.io/v1/storageclasses",
        {
            "metadata": {"name": "shared", "annotations": default},
            "provisioner": "files.example.com/shared",
        },
    )
    testbed.plane.ask(
        "POST",
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": "files"},
            "spec": {
                "capacity": {"storage": "20Gi"},
                "accessModes": ["ReadWriteMany"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "shared",
                "hostPath": {"path": str(shared), "type": "Directory"},
            },
        },
    )


def start_mlflow(road: Road) -> None:
    space = road.testbed.plane.space
    (road.folder / "mlflow").mkdir()
    words = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    words += ["--host", space.address, "--port", "5000"]
    words += ["--allowed-hosts", f"{space.address}:5000"]
    words += ["--backend-store-uri", f"sqlite:///{road.folder / 'mlflow' / 'mlflow.db'}"]
    words += ["--artifacts-destination", str(road.folder / "mlflow" / "artifacts")]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    space.start("mlflow", words, quiet)


@contextmanager
def prometheus(road: Road) -> Iterator[None]:
    """The shipped configuration, scraped more often.

    Debian's Prometheus has no discovery for Kubernetes: the pods are listed in a file, with the
    labels that the discovery gives them, so that the shipped relabelling applies.
    """
    folder = road.folder / "prometheus"
    folder.mkdir()
    config = yaml.safe_load((ROOT / "manifests/monitoring/kubernetes.yml").read_text())
    config["global"] = {"scrape_interval": "2s", "evaluation_interval": "2s"}
    pods = folder / "pods.json"
    pods.write_text("[]")
    for scraped in config["scrape_configs"]:
        assert scraped.pop("kubernetes_sd_configs") == [{"role": "pod"}]
        scraped["file_sd_configs"] = [{"files": [str(pods)], "refresh_interval": "1s"}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(ROOT / "manifests/monitoring/rules.yml", folder)
    space = road.testbed.plane.space
    words = ["prometheus", f"--config.file={folder / 'prometheus.yml'}"]
    words += [f"--storage.tsdb.path={folder / 'data'}"]
    space.start("prometheus", [*words, f"--web.listen-address={space.address}:9090"])
    over = threading.Event()

    def list_pods() -> None:
        while not over.wait(1.0):
            listed = road.ask("/api/v1/pods")["items"]
            replacement = pods.with_suffix(".new")
            replacement.write_text(
                json.dumps([target for pod in listed for target in targets(pod)])
            )
            replacement.replace(pods)

    thread = threading.Thread(target=list_pods, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def targets(pod: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each port of a pod, as the role `pod` of Prometheus' discovery describes it."""
    meta, status = pod["metadata"], pod["status"]
    if not status.get("podIP"):
        return
    found = {
        "__meta_kubernetes_namespace": meta["namespace"],
        "__meta_kubernetes_pod_name": meta["name"],
        "__meta_kubernetes_pod_phase": status["phase"],
    }
    for name, text in meta.get("labels", {}).items():
        found[f"__meta_kubernetes_pod_label_{re.sub(r'[^a-zA-Z0-9_]', '_', name)}"] = text
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", ()):
            labels = {**found, "__meta_kubernetes_pod_container_port_name": port.get("name", "")}
            yield {"targets": [f"{status['podIP']}:{port['containerPort']}"], "labels": labels}


def get(url: str, body: Mapping[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


def until(found: Callable[[], Any], timeout_s: float, what: Callable[[], object]) -> Any:
    """The first true result. `what` is described by the failure."""
    deadline = time.monotonic() + timeout_s
    while not (result := found()):
        assert time.monotonic() < deadline, what()
        time.sleep(0.5)
    return result


def is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def left_of_up(road: Road) -> list[str]:
    """All objects with the label of `cockpit up`, of each kind that can be listed."""
    paths = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}"
                          for group in road.ask("/apis")["groups"])]  # fmt: skip
    left = []
    for path in paths:
        for kind in road.ask(path)["resources"]:
            if "list" in kind["verbs"] and "/" not in kind["name"]:
                listed = road.ask(f"{path}/{kind['name']}?labelSelector={LABEL}")
                left += [f"{kind['kind']} {item['metadata']['name']}" for item in listed["items"]]
    return left


def test_three_commands_lead_from_an_empty_cluster_to_a_recovered_run_and_down_removes_all(
    road: Road,
) -> None:
    cockpit = road.cockpit
    up, launch, kill = readme_commands()
    where = launch[launch.index("-n") :]
    namespaces = names_of(road, "namespaces")
    add_storage(road.testbed)
    start_mlflow(road)
    cockpit.run(*up, "--small", "--yes")  # the pods ask for more CPUs than this machine has
    until(lambda: is_up(f"{road.mlflow}/health"), START_S,
          lambda: road.testbed.plane.space.said("mlflow"))  # fmt: skip
    with prometheus(road):
        job = cockpit.run(*launch, *SHORT).split()[-1]
        run_learns(road, where)
        with recorded(cockpit, where):
            recovers(road, kill)
            ended = until(lambda: ended_job(road, where), END_S, lambda: jobs(road, where))
        assert ended["status"] == "SUCCEEDED", ended
        is_seen_in_prometheus(road)
    report_has_everything(road, job, is_seen_in_mlflow(road, job))
    cockpit.run("down", "--on", "kubernetes", "--yes", *where)
    assert left_of_up(road) == []
    assert names_of(road, "namespaces") == namespaces


def names_of(road: Road, plural: str) -> list[str]:
    return [str(item["metadata"]["name"]) for item in road.ask(f"/api/v1/{plural}")["items"]]


def jobs(road: Road, where: list[str]) -> Any:
    return road.cockpit.poll("jobs", *where)


def ended_job(road: Road, where: list[str]) -> Any:
    return next((job for job in jobs(road, where) or () if job["ended_s"]), None)


def run_learns(road: Road, where: list[str]) -> None:
    """Until the loss is half of its first value, and 80 % of the held-out data is recognized."""

    def has_learned() -> bool:
        status = road.cockpit.poll("status", *where)
        if status is None or not status.get("run"):
            return False
        ranks = [rank for rank in status["ranks"] if rank.get("loss") is not None]
        return len(ranks) == 2 and (
            all(rank["loss"] < rank["loss_first"] / 2 for rank in ranks)
            and status["run"]["metrics"].get("accuracy", 0.0) > 0.8
        )

    until(has_learned, LEARN_S, lambda: road.cockpit.run("status", *where))


@contextmanager
def recorded(cockpit: Cockpit, where: list[str]) -> Iterator[None]:
    """Record as `cockpit record` does, which ends with the run."""
    recorder = cockpit.start("record", "--mlflow", *where)
    try:
        yield
        _, errors = recorder.communicate(timeout=120)
        assert recorder.returncode == 0, errors
    finally:
        recorder.kill()
        recorder.wait()


def recovers(road: Road, kill: list[str]) -> None:
    """The spare takes over from the killed pod."""
    recovery = json.loads(road.cockpit.run(*kill, "--yes", "-o", "json"))
    assert recovery["recovered"], recovery
    assert recovery["ranks"] == [1]
    assert recovery["steps_lost"] is not None


def is_seen_in_prometheus(road: Road) -> None:
    """The loss of each rank and the restarts, under the labels of the shipped configuration."""
    pods = '{namespace="ml",ray_io_cluster="demo",ray_io_group="headgroup"}'

    def values(expression: str) -> dict[str, float]:
        found = road.of_prometheus(f"query?query={quote(expression)}")["result"]
        return {each["metric"].get("rank", ""): float(each["value"][1]) for each in found}

    losses = values(f"min by (rank) (min_over_time(ray_cockpit_train_loss{pods}[1h]))")
    assert losses["0"] < 0.5
    assert losses["1"] < 0.5
    began = f"max(ray_cockpit_train_attempt_timestamp_seconds{pods} > 0)"
    assert values(f"changes({began}[1h:2s])")[""] == 1, "a new attempt after the kill"


def is_seen_in_mlflow(road: Road, job: str) -> str:
    """Parameters, metrics, and the best checkpoint as a model version. Returns the run's id."""
    [experiment] = [
        each
        for each in road.of_mlflow("experiments/search", {"max_results": 10})["experiments"]
        if each["name"] == "training"
    ]
    [run] = road.of_mlflow("runs/search", {"experiment_ids": [experiment["experiment_id"]]})["runs"]
    assert run["info"]["status"] == "FINISHED"
    params = {each["key"]: each["value"] for each in run["data"]["params"]}
    assert (params["epochs"], run["info"]["run_name"]) == (str(EPOCHS), job)
    metrics = {each["key"]: each["value"] for each in run["data"]["metrics"]}
    assert metrics["accuracy"] > 0.9
    run_id = str(run["info"]["run_id"])
    history = road.of_mlflow(f"metrics/get-history?run_id={run_id}&metric_key=accuracy")
    assert len({each["step"] for each in history["metrics"]}) > EPOCHS // 2
    files = road.of_mlflow(f"artifacts/list?run_id={run_id}")["files"]
    assert "report.html" in [each["path"] for each in files], "`record --mlflow` has added it"
    best = road.of_mlflow(f"registered-models/alias?name={MODEL}&alias=best")["model_version"]
    assert (best["version"], best["run_id"]) == ("1", run_id)
    return run_id


def report_has_everything(road: Road, job: str, tracked: str) -> None:
    """The restarts, and the run of MLflow, as `cockpit record` has read them."""
    report = json.loads(road.cockpit.run("report", job, "-o", "json", "--out=-"))
    assert report["outcome"] == "mixed", "it finished after restarts"
    assert "2 attempts" in report["verdict"]
    assert report["sections"]["tracked"]["id"] == tracked
