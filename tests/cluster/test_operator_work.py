"""The fake operator: several clusters, its end and restart, refusals, many pods."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.cluster import kwok
from tests.cluster.operator.api import Api
from tests.cluster.operator.operator import run
from tests.cluster.testbed import Testbed

Object = dict[str, Any]


def cluster(name: str, workers: int, *, memory: str = "") -> Object:
    resources = {"limits": {"memory": memory}} if memory else {}
    spec = {
        "tolerations": [kwok.TOLERATION],
        "containers": [{"name": "ray", "image": "ray", "resources": resources}],
    }
    group = {
        "groupName": "gpu",
        "replicas": workers,
        "minReplicas": 0,
        "maxReplicas": 2000,
        "template": {"spec": spec},
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name},
        "spec": {
            "rayVersion": "2.60.0",
            "headGroupSpec": {"template": {"spec": spec}},
            "workerGroupSpecs": [group],
        },
    }


class Clusters:
    """Those of one namespace."""

    def __init__(self, api: Api, testbed: Testbed, namespace: str) -> None:
        self.api = api
        self.testbed = testbed
        self.namespace = namespace
        self.path = f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters"

    @asynccontextmanager
    async def operator(self) -> AsyncIterator[None]:
        task = asyncio.create_task(run(self.testbed.kubeconfig, self.namespace))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def pods(self, name: str) -> list[str]:
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        answer = await self.api.get(path, labelSelector=f"ray.io/cluster={name}")
        return [
            item["metadata"]["name"]
            for item in answer["items"]
            if "deletionTimestamp" not in item["metadata"]
        ]

    async def becomes(self, name: str, timeout_s: float = 30, **wanted: Any) -> Object:
        """Wait until the status has all these values; a missing field counts as 0."""
        deadline = time.monotonic() + timeout_s
        while True:
            status: Object = (await self.api.get(f"{self.path}/{name}")).get("status", {})
            if all(status.get(field, 0) == value for field, value in wanted.items()):
                return status
            assert time.monotonic() < deadline, f"{name} is not {wanted}: {status}"
            await asyncio.sleep(0.1)

    async def scale(self, name: str, replicas: int) -> None:
        item = await self.api.get(f"{self.path}/{name}")
        (group,) = item["spec"]["workerGroupSpecs"]
        groups = [{**group, "replicas": replicas}]
        await self.api.merge(f"{self.path}/{name}", {"spec": {"workerGroupSpecs": groups}})


@pytest.fixture
async def clusters(
    control_plane: Testbed, request: pytest.FixtureRequest
) -> AsyncIterator[Clusters]:
    name = request.node.name.removeprefix("test_").replace("_", "-")[:50].strip("-")
    namespace = control_plane.namespace(name)
    api = Api(control_plane.kubeconfig)
    nodes = (await api.get("/api/v1/nodes"))["items"]
    if not any(node["metadata"]["name"] == "operator-0" for node in nodes):
        add = partial(kwok.add_nodes, control_plane.plane, 3, prefix="operator")
        await asyncio.to_thread(add)
    yield Clusters(api, control_plane, namespace)
    await api.delete(f"/api/v1/namespaces/{namespace}")
    await api.aclose()


async def test_clusters_are_looked_after_side_by_side(clusters: Clusters) -> None:
    async with clusters.operator():
        for number in range(4):
            await clusters.api.create(clusters.path, cluster(f"demo-{number}", number))
        for number in range(4):
            await clusters.becomes(f"demo-{number}", readyWorkerReplicas=number, state="ready")
            assert len(await clusters.pods(f"demo-{number}")) == number + 1


async def test_operator_applies_changes_made_while_it_was_down(clusters: Clusters) -> None:
    async with clusters.operator():
        await clusters.api.create(clusters.path, cluster("demo", 2))
        await clusters.becomes("demo", readyWorkerReplicas=2, state="ready")
    before = await clusters.pods("demo")
    lost = next(name for name in before if "-worker-" in name)
    path = f"/api/v1/namespaces/{clusters.namespace}/pods/{lost}"
    await clusters.api.delete(path, grace_s=0)
    await clusters.scale("demo", 3)
    async with clusters.operator():
        await clusters.becomes("demo", readyWorkerReplicas=3)
    after = await clusters.pods("demo")
    assert len(after) == 4
    assert set(before) - set(after) == {lost}


async def test_a_pod_that_a_quota_forbids_is_reported_and_made_once_it_may(
    clusters: Clusters,
) -> None:
    quotas = f"/api/v1/namespaces/{clusters.namespace}/resourcequotas"
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "2"}}}
    await clusters.api.create(quotas, quota)
    async with clusters.operator():
        await clusters.api.create(clusters.path, cluster("demo", 3))
        status = await clusters.becomes("demo", readyWorkerReplicas=1)
        kinds = {condition["type"]: condition for condition in status["conditions"]}
        assert kinds["ReplicaFailure"]["reason"] == "FailedCreateWorkerPod"
        assert "exceeded quota" in kinds["ReplicaFailure"]["message"]
        await clusters.api.delete(f"{quotas}/small")
        status = await clusters.becomes("demo", readyWorkerReplicas=3)
        assert "ReplicaFailure" not in {c["type"] for c in status["conditions"]}


@pytest.mark.slow
async def test_two_hundred_workers_come_and_go(clusters: Clusters) -> None:
    async with clusters.operator():
        await clusters.api.create(clusters.path, cluster("demo", 200))
        await clusters.becomes("demo", 90, readyWorkerReplicas=200, state="ready")
        await clusters.scale("demo", 150)
        await clusters.becomes("demo", readyWorkerReplicas=150)
        assert len(await clusters.pods("demo")) == 151


@pytest.mark.slow
async def test_an_api_server_that_was_away_does_not_end_it(clusters: Clusters) -> None:
    plane = clusters.testbed.plane
    async with clusters.operator():
        await clusters.api.create(clusters.path, cluster("demo", 1))
        await clusters.becomes("demo", readyWorkerReplicas=1)
        # Killed: on SIGTERM it would wait for the watches to end.
        await asyncio.to_thread(plane.stop_api_server, signal.SIGKILL)
        await asyncio.to_thread(plane.start_api_server)
        await asyncio.to_thread(plane.wait_until_ready)
        await clusters.scale("demo", 2)
        await clusters.becomes("demo", readyWorkerReplicas=2)
