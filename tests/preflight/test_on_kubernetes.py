"""The preflight in real pods: a module, a volume, shared memory, a quota and a slow network."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.cli.main import main
from cockpit.drills.engine import pod_script
from cockpit.model.cluster import NodeType
from cockpit.model.scale import ScaleRequest
from cockpit.preflight import network
from cockpit.preflight import preflight as module
from cockpit.session import builder
from cockpit.session.session import Session
from tests.cluster.fixtures import RealCluster
from tests.cluster.raycluster import STORAGE, ray_cluster

pytestmark = [pytest.mark.slow, pytest.mark.ray]

Rows = dict[str, dict[str, Any]]
RATE_KBIT = 5_000


@pytest.fixture(scope="module")
def session(ray_on_kubernetes: RealCluster) -> Iterator[Session]:
    with builder.session_on(ray_on_kubernetes.backend(), sources=()) as session:
        assert session.wait(lambda store: len(store.pods) >= 2, 60.0)
        yield session
    ray_on_kubernetes.wait_ready(1)


@pytest.fixture
def preflight(
    ray_on_kubernetes: RealCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Rows]:
    """Run the verb, which must exit with `code`; its rows by name."""
    monkeypatch.setenv("KUBECONFIG", str(ray_on_kubernetes.kubeconfig))
    ref = ray_on_kubernetes.ref

    def call(*argv: str, code: int = 0, cluster: str = ref.name) -> Rows:
        where = ("-n", ref.namespace, "--cluster", cluster)
        assert main(["preflight", *argv, *where, "-o", "json"]) == code, capsys.readouterr()
        return {row["name"]: row for row in json.loads(capsys.readouterr().out)}

    return call


def workers(session: Session) -> list[str]:
    session.drain()
    pods = session.store.pods.values()
    return sorted(pod.name for pod in pods if pod.node_type is NodeType.WORKER and pod.ready)


def run(session: Session, pod: str, *argv: str) -> None:
    done = session.call(session.backend.exec(pod, argv), 60.0)
    assert done.exit_code == 0, done.stderr


def test_missing_module_and_volume_that_is_not_shared_are_found(
    preflight: Callable[..., Rows],
) -> None:
    shared = f"--set=storage_path={STORAGE}/runs"
    found = preflight("checkpointed", "--workers=1", shared)
    assert found["storage"]["found"] == f"{STORAGE}/runs is shared by 2 pods"
    assert {found[name]["state"] for name in ("python", "ray", "torch", "modules")} == {"ok"}
    assert found["ranks on the head"]["state"] == found["room"]["state"] == "ok"
    found = preflight(
        "checkpointed", "--workers=1", "--module=nothing_of_this_name", "--recovery=default", code=1
    )
    assert found["module"]["found"].startswith("nothing_of_this_name is missing in demo-")
    assert found["storage"]["state"] == "failed"
    assert "~/ray_results is not shared" in found["storage"]["found"]
    assert len(found["storage"]["pods"]) == 2


def test_full_shared_memory_is_found(
    ray_on_kubernetes: RealCluster, preflight: Callable[..., Rows]
) -> None:
    """In a head of its own: KubeRay's /dev/shm is as large as the memory limit of the pod."""
    plane, namespace = ray_on_kubernetes.testbed.plane, ray_on_kubernetes.ref.namespace
    body = ray_cluster("small", (), namespace=namespace)
    spec = body["spec"]["headGroupSpec"]["template"]["spec"]
    spec["volumes"].append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "32Mi"}})
    spec["containers"][0]["volumeMounts"].append({"name": "shm", "mountPath": "/dev/shm"})
    path = f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters"
    plane.ask("POST", path, body)
    ref = replace(ray_on_kubernetes.ref, name="small")
    small = dataclasses.replace(ray_on_kubernetes, ref=ref)
    try:
        small.wait_ready(0)
        assert preflight(cluster="small")["/dev/shm"]["state"] == "ok"
        [head] = [pod["metadata"]["name"] for pod in small.pods()]
        fill = ("sh", "-c", "head -c 24M /dev/zero > /dev/shm/full")
        with builder.session_on(small.backend(), sources=()) as session:
            run(session, head, *fill)
        found = preflight(cluster="small", code=1)["/dev/shm"]
        assert (found["state"], found["pods"]) == ("failed", [head])
    finally:
        small.delete()


def test_quota_is_read(
    ray_on_kubernetes: RealCluster, session: Session, preflight: Callable[..., Rows]
) -> None:
    path = f"/api/v1/namespaces/{ray_on_kubernetes.ref.namespace}/resourcequotas"
    plane = ray_on_kubernetes.testbed.plane
    body = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "3"}}}
    plane.ask("POST", path, body)
    try:
        deadline = time.monotonic() + 30.0
        while plane.ask("GET", f"{path}/team").get("status", {}).get("used") != {"pods": "2"}:
            assert time.monotonic() < deadline, "the quota was not calculated"
            time.sleep(0.1)
        found = preflight("checkpointed", "--workers=4", f"--storage={STORAGE}", code=1)["quota"]
    finally:
        plane.ask("DELETE", f"{path}/team")
    assert found["state"] == "failed"
    assert found["found"] == ("team allows 1 more pod of group gpu (pods); 3 ranks more need room.")


@pytest.mark.timed  # it compares rates
def test_pod_with_a_slow_network_is_named_with_its_node(
    ray_on_kubernetes: RealCluster,
    session: Session,
    preflight: Callable[..., Rows],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Beside other tests, the pods import torch at different times.
    monkeypatch.setattr(network, "WAIT_S", 300.0)
    monkeypatch.setattr(module, "measure", partial(network.measure, limit_s=600.0))
    session.call(session.backend.scale(ScaleRequest("gpu", 2)), 30.0)
    try:
        ray_on_kubernetes.wait_ready(2)
        assert session.wait(lambda store: len(workers(session)) == 2, 30.0)
        slow = workers(session)[1]
        rate = ("rate", str(RATE_KBIT), "120")
        run(session, slow, *pod_script.argv("network", "on", "cockpit-preflight", *rate))
        try:
            found = preflight("--network", code=1)["network"]
        finally:
            run(session, slow, *pod_script.argv("network", "off", "cockpit-preflight"))
    finally:
        session.call(session.backend.scale(ScaleRequest("gpu", 1)), 30.0)
        ray_on_kubernetes.wait_ready(1)
    assert (found["state"], found["pods"]) == ("failed", [slow])
    assert f"All pairs with {slow} have low bandwidth." in found["found"]
    assert found["fix"] == f"Check the network of {slow} (node node-1)."
