"""The verbs on a real API server, with pods that only exist on paper."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cockpit.actions import audit
from cockpit.cli.main import main
from tests.cluster.control_plane import ControlPlane
from tests.cluster.kwok import TOLERATION, add_nodes
from tests.cluster.raycluster import Group, ray_cluster
from tests.cluster.testbed import Testbed

NAMESPACE, OTHER, EMPTY = "cli", "cli-other", "cli-empty"
RAY = f"/apis/ray.io/v1/namespaces/{NAMESPACE}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
HOSTILE = "\x1b]0;owned\x07\x1b[2Jboom"


def make_pod(plane: ControlPlane, name: str, group: str, *, placed: bool = True) -> None:
    pod: dict[str, Any] = {
        "metadata": {
            "name": name,
            "labels": {
                "ray.io/cluster": "trainer",
                "ray.io/group": group,
                "ray.io/node-type": "head" if group == "headgroup" else "worker",
            },
            "annotations": {"note": HOSTILE},
        },
        "spec": {
            "containers": [{"name": "ray", "image": "none"}],
            "tolerations": [TOLERATION],
        },
    }
    if not placed:
        pod["spec"]["nodeSelector"] = {"there-is": "no-such-node"}
    plane.ask("POST", PODS, pod)


@pytest.fixture(scope="module")
def plane(control_plane: Testbed) -> Iterator[ControlPlane]:
    """A head and two running workers, and one that does not fit on any node."""
    plane = control_plane.plane
    for namespace in (NAMESPACE, OTHER, EMPTY):
        control_plane.namespace(namespace)
    add_nodes(plane, 1, prefix="cli")
    for name, namespace in (("trainer", NAMESPACE), ("one", OTHER), ("two", OTHER)):
        body = ray_cluster(name, (Group("gpu", 3, 0, 4),), namespace=namespace, simulated=True)
        plane.ask("POST", f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters", body)
    make_pod(plane, "trainer-head", "headgroup")
    make_pod(plane, "trainer-gpu-a", "gpu")
    make_pod(plane, "trainer-gpu-b", "gpu")
    make_pod(plane, "trainer-gpu-c", "gpu", placed=False)
    wait_until(lambda: ready(plane) == 3)
    wait_until(lambda: "PodScheduled" in conditions(plane, "trainer-gpu-c"))
    yield plane
    for namespace in (NAMESPACE, OTHER, EMPTY):
        plane.ask("DELETE", f"/api/v1/namespaces/{namespace}")


def ready(plane: ControlPlane) -> int:
    return sum(
        any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"]["conditions"])
        for pod in plane.ask("GET", PODS)["items"]
        if pod["status"].get("conditions")
    )


def conditions(plane: ControlPlane, name: str) -> list[str]:
    status = plane.ask("GET", f"{PODS}/{name}")["status"]
    return [condition["type"] for condition in status.get("conditions", ())]


def wait_until(true: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"https://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def kubeconfig(
    plane: ControlPlane,
    control_plane: Testbed,
    silent: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Path:
    """The test cluster, a server that refuses connections, and one that does not respond."""
    raw = yaml.safe_load(control_plane.kubeconfig.read_text())
    [context] = raw["contexts"]
    for name, server in (("refused", "https://127.0.0.1:1"), ("silent", silent)):
        raw["clusters"].append({"name": name, "cluster": {"server": server}})
        raw["contexts"].append({"name": name, "context": {**context["context"], "cluster": name}})
    context["context"]["namespace"] = NAMESPACE
    raw["current-context"] = context["name"]
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(raw))
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.fixture
def run(
    kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    def call(*argv: str) -> tuple[int, str, str]:
        code = main(list(argv))
        text = capsys.readouterr()
        return code, text.out, text.err

    return call


Run = Callable[..., tuple[int, str, str]]
NAMED = ("--cluster", "trainer")
"""What --yes needs."""


def rows(run: Run, *argv: str) -> list[dict[str, Any]]:
    code, out, err = run(*argv, "-o", "json")
    assert code == 0, err
    found: list[dict[str, Any]] = json.loads(out)
    return found


def test_a_snapshot_at_the_only_cluster_of_the_namespace(run: Run) -> None:
    code, out, err = run("status", "-o", "json")
    assert code == 0, err
    status = json.loads(out)
    assert (status["cluster"]["name"], status["cluster"]["namespace"]) == ("trainer", NAMESPACE)
    [group] = status["groups"]
    assert (group["name"], group["desired"], group["ready"]) == ("gpu", 3, 2)
    pods = {pod["name"]: pod for pod in status["pods"]}
    assert pods["trainer-head"]["node_type"] == "head"
    assert pods["trainer-gpu-a"]["ready"]
    assert pods["trainer-gpu-a"]["group"] == "gpu"
    assert pods["trainer-gpu-a"]["host"]
    assert 0 < time.time() - pods["trainer-gpu-a"]["created_s"] < 600
    assert not pods["trainer-gpu-c"]["ready"]


def test_one_shot_query_and_watched_list_agree_on_each_pod(run: Run) -> None:
    same = (
        *("uid", "group", "node_type", "phase", "ready", "ip", "restarts", "reason", "host"),
        *("created_s", "replica"),
    )

    def of(pods: list[dict[str, Any]]) -> dict[str, list[Any]]:
        return {pod["name"]: [pod[key] for key in same] for pod in pods}

    def agree() -> bool:
        [_, out, _] = run("status", "-o", "json")
        one_shot.update(of(json.loads(out)["pods"]))
        listed.update(of(rows(run, "pods")))
        return one_shot == listed

    one_shot: dict[str, list[Any]] = {}
    listed: dict[str, list[Any]] = {}
    # The scheduler may change its message on a pod between the two queries.
    wait_until(agree, 30)


def test_namespaces_and_labels_select_as_kubectl_does(run: Run) -> None:
    gpu = {"trainer-gpu-a", "trainer-gpu-b", "trainer-gpu-c"}
    assert {pod["name"] for pod in rows(run, "pods", "-l", "ray.io/group=gpu")} == gpu
    assert rows(run, "pods", "-l", "ray.io/group in (none)") == []
    everywhere = rows(run, "pods", "-A", "-l", "ray.io/group!=headgroup")
    assert {pod["name"] for pod in everywhere if pod["namespace"] == NAMESPACE} == gpu
    names = {cluster["name"] for cluster in rows(run, "clusters", "-A", "-n", EMPTY)}
    assert {"trainer", "one", "two"} <= names
    code, _, err = run("pods", "-l", "a==b==c")
    assert code == 2, err
    assert "The label selector" in err


def test_a_pod_that_does_not_start_reports_why(run: Run) -> None:
    pods = {pod["name"]: pod for pod in rows(run, "pods")}
    assert pods["trainer-gpu-c"]["phase"] == "Pending"
    assert pods["trainer-gpu-c"]["reason"]


@pytest.mark.slow
@pytest.mark.timed
def test_clusters_of_all_contexts_are_listed_and_no_context_holds_up_another(run: Run) -> None:
    began = time.monotonic()
    code, out, err = run("clusters", "-o", "json")
    assert time.monotonic() - began < 8
    assert code == 0
    found = json.loads(out)
    named = {(row["namespace"], row["name"]) for row in found if row["name"]}
    assert {(NAMESPACE, "trainer"), (OTHER, "one"), (OTHER, "two")} <= named
    assert {row["context"] for row in found if row["error"]} == {"refused", "silent"}
    assert "Context refused:" in err
    assert "Context silent:" in err


def test_ambiguous_cluster_is_an_error_with_the_flags_to_type(run: Run) -> None:
    code, _, err = run("pods", "-n", OTHER)
    assert code == 2
    assert "--cluster one; --cluster two" in err
    code, _, err = run("pods", "-n", EMPTY)
    assert code == 2
    assert f"-n {NAMESPACE} --cluster trainer" in err
    code, _, err = run("pods", "-n", "cli-nowhere")
    assert code == 2
    assert "no namespace 'cli-nowhere'" in err
    assert run("groups", "-n", OTHER, "--cluster", "two")[0] == 0
    code, _, err = run("groups", "-n", "default", "--cluster", "two")
    assert code == 3
    assert f"One of that name is elsewhere: -n {OTHER} --cluster two" in err
    code, _, err = run("pods", "--cluster", "nobody")
    assert code == 3
    assert "no RayCluster" in err
    assert "cockpit clusters" in err
    assert run("pods", "--context", "refused")[0] == 3


def test_nodes_are_cordoned_and_uncordoned_with_a_trace_of_both(
    run: Run, plane: ControlPlane
) -> None:
    name = rows(run, "nodes", "--kubernetes")[0]["name"]
    node = f"/api/v1/nodes/{name}"
    assert run("cordon", name, "--yes", *NAMED)[0] == 0
    assert plane.ask("GET", node)["spec"]["unschedulable"]
    assert run("uncordon", name, "--yes")[0] == 0
    assert not plane.ask("GET", node)["spec"].get("unschedulable")
    lines = [json.loads(line) for line in audit.path().read_text().splitlines()]
    assert [(line["action"], line["kind"], line["result"]) for line in lines] == [
        ("cordon", "Node", "done"),
        ("uncordon", "Node", "done"),
    ]
    events = plane.ask("GET", "/api/v1/namespaces/default/events")["items"]
    assert {"CockpitCordon", "CockpitUncordon"} <= {event["reason"] for event in events}


def test_scaling_and_suspending_change_the_object_and_leave_an_event(
    run: Run, plane: ControlPlane
) -> None:
    cluster = f"{RAY}/rayclusters/trainer"
    assert run("scale", "gpu", "+1", "--yes", *NAMED)[0] == 0
    assert plane.ask("GET", cluster)["spec"]["workerGroupSpecs"][0]["replicas"] == 4
    code, _, err = run("scale", "gpu", "9", "--yes", *NAMED)
    assert code == 0
    assert "limited to 4" in err
    assert run("scale", "gpu", "3", "--yes", *NAMED)[0] == 0
    assert run("suspend", "--yes", *NAMED)[0] == 0
    assert plane.ask("GET", cluster)["spec"]["suspend"]
    assert run("unsuspend", "--yes")[0] == 0
    assert not plane.ask("GET", cluster)["spec"]["suspend"]
    reasons = [event["reason"] for event in rows(run, "events")]
    assert {"CockpitScale", "CockpitSuspend", "CockpitUnsuspend"} <= set(reasons)


def test_a_kill_without_waiting_deletes_the_pod(run: Run, plane: ControlPlane) -> None:
    make_pod(plane, "trainer-gpu-d", "gpu")
    assert run("kill", "trainer-gpu-d", "--yes", "--no-wait", *NAMED)[0] == 0
    wait_until(
        lambda: (
            "trainer-gpu-d" not in [p["metadata"]["name"] for p in plane.ask("GET", PODS)["items"]]
        )
    )


def test_objects_are_shown_without_what_takes_hold_of_a_terminal(run: Run) -> None:
    for verb in ("yaml", "describe"):
        code, out, err = run(verb, "pod/trainer-gpu-a")
        assert code == 0, err
        assert "trainer-gpu-a" in out
        assert "\x1b" not in out
        assert "\x07" not in out
    assert run("yaml", "pod/nobody")[0] == 2


def test_without_rights_every_verb_is_refused_with_4(
    run: Run, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(plane.user_kubeconfig("cli-nobody")))
    where = ("-n", NAMESPACE, "--cluster", "trainer")
    for argv in (
        ["status"],
        ["pods"],
        ["nodes", "--kubernetes"],
        ["clusters"],
        ["scale", "gpu", "1", "--yes"],
        ["suspend", "--yes"],
        ["cordon", "node", "--yes"],
        ["kill", "trainer-gpu-a", "--yes"],
        ["launch", "checkpointed"],
        ["launch", "checkpointed", "--via", "rayjob"],
        ["yaml", "cluster"],
        ["describe", "pod/trainer-gpu-a"],
        ["exec", "trainer-gpu-a", "--", "ls"],
    ):
        code, _, err = run(*argv, *where) if "--" not in argv else run(*where, *argv)
        assert code == 4, (argv, err)
        assert "may not" in err or "forbidden" in err


def test_doctor_reports_of_each_part_whether_it_is_well(run: Run) -> None:
    code, out, _ = run("doctor", "-o", "json")
    checks = {check["name"]: check for check in json.loads(out)}
    assert code == 1
    assert checks["api server"]["ok"]
    assert checks["rayclusters.ray.io"]["found"] == "with RayJobs"
    assert checks["may scale"]["ok"]
    assert not checks["kuberay operator"]["ok"], "there is none"
    assert not checks["dashboard route"]["ok"], "no pod runs for real"
    assert checks["dashboard route"]["fix"]


def test_a_snapshot_opens_no_watch_and_asks_little(
    run: Run, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    from cockpit.backends.kuberay.api.client import KubeClient

    send = KubeClient._send

    async def noted(self: KubeClient, method: str, path: str, *more: Any, **named: Any) -> bytes:
        asked.append(f"{method} {path}")
        return await send(self, method, path, *more, **named)

    monkeypatch.setattr(KubeClient, "_send", noted)
    assert run("groups", "--cluster", "trainer")[0] == 0
    assert len(asked) <= 5, asked
