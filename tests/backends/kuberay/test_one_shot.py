"""One-shot queries read pods from the table that kubectl prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from cockpit.backends.kuberay.api.client import ForbiddenError, KubeClient, KubeError
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import KubeContext
from cockpit.backends.kuberay.one_shot import OneShotBackend, one_shot_events
from cockpit.model.cluster import ClusterHealth, ClusterRef, NodeType, PodPhase
from cockpit.model.event import (
    ClusterSeen,
    Event,
    GroupsListed,
    KubernetesNodesListed,
    PodsListed,
    SourceHealth,
)

REF = ClusterRef("kuberay", "trainer", "ml", "prod")
COLUMNS = ("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node")
CLUSTER = {
    "metadata": {"name": "trainer", "namespace": "ml", "uid": "1"},
    "spec": {
        "workerGroupSpecs": [
            {"groupName": "gpu", "replicas": 2, "minReplicas": 0, "maxReplicas": 4}
        ]
    },
}
HEAD = ("trainer-head", "2/2", "Running", "0", "5d3h", "10.0.0.1", "node-1")
WELL = ("trainer-gpu-a", "1/1", "Running", "3 (2m ago)", "47s", "10.0.0.2", "node-2")


class Client:
    """An API server with one RayCluster; the workers are those of group `gpu`."""

    def __init__(self, *workers: tuple[str, ...], error: Exception | None = None) -> None:
        self.workers, self.error = workers, error
        self.nodes_error: Exception | None = None
        self.deleted_node = ""
        self.read: list[str] = []
        self.tables = 0

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        self.read.append(path.rpartition("/")[2])
        if "/nodes/" in path:
            if self.nodes_error:
                raise self.nodes_error
            if self.read[-1] == self.deleted_node:
                raise KubeError("it has gone meanwhile", status=404)
            labels = {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
            return {"metadata": {"name": self.read[-1], "labels": labels}}
        if "/pods/" in path:
            raise KubeError("it has gone meanwhile", status=404)
        if self.error and "rayclusters" in path:
            raise self.error
        return CLUSTER

    async def find(self, path: str) -> Any:
        try:
            return await self.get(path)
        except KubeError:
            return None

    async def table(self, path: str, params: Mapping[str, str]) -> Any:
        assert params == {"labelSelector": "ray.io/cluster=trainer"}
        self.tables += 1
        return {
            "columnDefinitions": [{"name": name} for name in COLUMNS],
            "rows": [
                {"cells": list(row), "object": {"metadata": metadata(row[0])}}
                for row in (HEAD, *self.workers)
            ],
        }


def metadata(name: str) -> dict[str, Any]:
    kind, group = ("head", "headgroup") if name == HEAD[0] else ("worker", "gpu")
    return {
        "name": name,
        "uid": f"uid-of-{name}",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "labels": {"ray.io/node-type": kind, "ray.io/group": group},
    }


async def look(client: Client, *kinds: str) -> dict[type, Event]:
    return {type(event): event for event in await events_of(client, *kinds)}


async def events_of(client: Client, *kinds: str) -> list[Event]:
    path = f"/apis/ray.io/v1/namespaces/{REF.namespace}/rayclusters/{REF.name}"
    return await one_shot_events(cast("KubeClient", client), REF, kinds, client.get(path))


def worker(name: str, ready: str, status: str) -> tuple[str, ...]:
    return (name, ready, status, "0", "2m", "<none>", "<none>")


async def test_the_object_is_read_once_for_the_state_and_the_dashboard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = KubeContext("prod", "ml", "http://127.0.0.1:1", "user", {}, {})
    backend = OneShotBackend(Credentials(context), REF, kinds=("cluster",))
    client = Client(error=KubeError("not now", status=503))
    monkeypatch.setattr(backend.client, "get", client.get)
    with pytest.raises(KubeError):
        await backend._raw()
    client.error = None
    async for event in backend.watch():
        if isinstance(event, ClusterSeen):
            break
    assert await backend._raw() == CLUSTER
    assert client.read == ["trainer", "trainer"], "one that failed is read again"
    await backend.aclose()


async def test_nodes_of_the_pods_are_read_with_their_types() -> None:
    client = Client(WELL, worker("trainer-gpu-b", "0/1", "Pending"))
    listed = (await look(client, "pods", "nodes"))[KubernetesNodesListed]
    assert isinstance(listed, KubernetesNodesListed)
    assert [(node.name, node.type) for node in listed.nodes] == [
        ("node-1", "p4d.24xlarge"), ("node-2", "p4d.24xlarge"),
    ]  # fmt: skip


async def test_deleted_node_hides_no_other() -> None:
    client = Client(WELL)
    client.deleted_node = "node-1"
    listed = (await look(client, "pods", "nodes"))[KubernetesNodesListed]
    assert isinstance(listed, KubernetesNodesListed)
    assert [node.name for node in listed.nodes] == ["node-2"]


async def test_refused_nodes_are_reported_beside_the_pods() -> None:
    client = Client(WELL)
    client.nodes_error = ForbiddenError("you may not", "nodes is forbidden", status=403)
    events = await events_of(client, "pods", "nodes")
    refused = next(e for e in events if isinstance(e, SourceHealth) and "nodes" in e.source)
    assert (refused.source, refused.ok) == ("backend:nodes", False)
    assert any(isinstance(event, PodsListed) for event in events)


async def test_a_table_reports_groups_pods_and_health() -> None:
    found = await look(Client(WELL, worker("trainer-gpu-b", "0/1", "Pending")), "pods")
    listed = found[PodsListed]
    assert isinstance(listed, PodsListed)
    head, well, waiting = listed.pods
    assert (head.node_type, head.group, head.ready) == (NodeType.HEAD, "headgroup", True)
    assert (well.group, well.restarts, well.ip, well.host) == ("gpu", 3, "10.0.0.2", "node-2")
    assert head.created_s == 1_767_323_045.0
    assert (waiting.phase, waiting.ready, waiting.ip) == (PodPhase.PENDING, False, "")
    assert waiting.reason == "Pending"
    groups = found[GroupsListed]
    assert isinstance(groups, GroupsListed)
    assert (groups.groups[0].desired, groups.groups[0].ready) == (2, 1)
    assert isinstance(found[SourceHealth], SourceHealth)


async def test_uid_and_labels_come_with_the_one_request_for_the_table() -> None:
    client = Client(WELL)
    listed = (await look(client, "pods"))[PodsListed]
    assert isinstance(listed, PodsListed)
    assert [pod.uid for pod in listed.pods] == ["uid-of-trainer-head", "uid-of-trainer-gpu-a"]
    assert (client.tables, client.read) == (1, ["trainer"])


@pytest.mark.parametrize(
    ("ready", "status", "phase"),
    [
        ("0/1", "CrashLoopBackOff", PodPhase.PENDING),
        ("0/1", "Init:0/1", PodPhase.PENDING),
        ("0/1", "Error", PodPhase.FAILED),
        ("0/1", "Evicted", PodPhase.FAILED),
        ("0/1", "Completed", PodPhase.SUCCEEDED),
        ("1/1", "Terminating", PodPhase.TERMINATING),
        ("0/1", "Running", PodPhase.RUNNING),
        ("0/0", "Running", PodPhase.RUNNING),
        ("", "\x1b[2JRunning", PodPhase.RUNNING),
    ],
)
async def test_status_column_of_kubectl_becomes_phase_and_reason(
    ready: str, status: str, phase: PodPhase
) -> None:
    found = await look(Client(worker("w", ready, status)), "pods")
    listed = found[PodsListed]
    assert isinstance(listed, PodsListed)
    pod = listed.pods[-1]
    assert pod.phase is phase
    assert not pod.ready
    assert "\x1b" not in pod.reason


async def test_only_some_of_very_many_broken_pods_are_read_one_by_one() -> None:
    client = Client(*(worker(f"w-{number}", "0/1", "Pending") for number in range(500)))
    found = await look(client, "pods")
    listed = found[PodsListed]
    assert isinstance(listed, PodsListed)
    assert len(listed.pods) == 501
    assert len(client.read) == 1 + 20


@pytest.mark.parametrize(
    ("error", "health", "words"),
    [
        (KubeError("no", status=404), ClusterHealth.DOWN, "there is no RayCluster trainer"),
        (ForbiddenError("You may not.", status=403), ClusterHealth.UNKNOWN, "You may not."),
    ],
)
async def test_a_cluster_that_is_not_to_be_seen_reports_why(
    error: Exception, health: ClusterHealth, words: str
) -> None:
    found = await look(Client(error=error), "pods")
    seen, source = found[ClusterSeen], found[SourceHealth]
    assert isinstance(seen, ClusterSeen)
    assert isinstance(source, SourceHealth)
    assert seen.health is health
    assert words in source.error
    assert not source.ok


async def test_a_row_of_pods_that_is_not_understood_is_skipped() -> None:
    class Odd(Client):
        async def table(self, path: str, params: Mapping[str, str]) -> Any:
            table = await super().table(path, params)
            return {**table, "rows": [{**table["rows"][0], "cells": True}, *table["rows"]]}

    listed = (await look(Odd(WELL), "pods"))[PodsListed]
    assert isinstance(listed, PodsListed)
    assert [pod.name for pod in listed.pods] == [HEAD[0], WELL[0]]
