"""Queues of Kueue and Volcano, watched on a real API server with their own definitions.

The controllers of Kueue and Volcano do not run: the tests write what they would.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from cockpit.backends.kuberay.backend import KubeRayBackend
from cockpit.insight.waiting.chain import cluster_chain, pod_chain
from cockpit.model.cluster import ClusterHealth
from cockpit.model.event import ClusterSeen, GroupsListed, PodsListed, QueuesListed, SourceHealth
from cockpit.model.waiting import QueueState, WaitStage
from cockpit.store.store import Store
from tests.backends.contract import seen
from tests.backends.kuberay.by_hand import Place
from tests.backends.kuberay.queue_objects import (
    PENDING,
    RESERVED,
    cluster_queue,
    local_queue,
    pod_group,
    volcano_queue,
    workload,
)
from tests.cluster import module_crds
from tests.cluster.control_plane import ControlPlane
from tests.cluster.testbed import Testbed

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RBAC = Path(__file__).parents[3] / "manifests" / "kubernetes" / "base" / "rbac.yaml"
QUEUE = {"kueue.x-k8s.io/queue-name": "team-a"}
GONE_S = 60.0
SUMMARY = "queued 1st in team-a: 4 of 8 GPUs in use"


def installed(testbed: Testbed, crds: Sequence[dict[str, Any]]) -> Iterator[None]:
    plane = testbed.plane
    paths = [f"{CRDS}/{crd['metadata']['name']}" for crd in crds]
    for crd in crds:
        plane.ask("POST", CRDS, crd)
    for crd in crds:
        version = crd["spec"]["versions"][-1]["name"]
        plane.wait_for(f"/apis/{crd['spec']['group']}/{version}/{crd['spec']['names']['plural']}")
    yield
    for path in paths:
        plane.ask("DELETE", path)
    deadline = time.monotonic() + GONE_S
    while any(path in paths for path in _all_crds(plane)):  # another module may install them again
        assert time.monotonic() < deadline, "definitions of queues are left"
        time.sleep(0.1)


def _all_crds(plane: ControlPlane) -> list[str]:
    return [f"{CRDS}/{crd['metadata']['name']}" for crd in plane.ask("GET", CRDS)["items"]]


@pytest.fixture(scope="module")
def kueue(control_plane: Testbed) -> Iterator[None]:
    yield from installed(control_plane, module_crds.kueue())


@pytest.fixture(scope="module")
def volcano(control_plane: Testbed) -> Iterator[None]:
    yield from installed(control_plane, module_crds.volcano())


def make(place: Place, plural: str, body: dict[str, Any]) -> str:
    """Create the object with its status. Returns its path."""
    kind = plural in ("clusterqueues", "queues")
    name = f"{body['metadata']['name']}-{place.namespace}" if kind else body["metadata"]["name"]
    scope = "" if kind else f"/namespaces/{place.namespace}"
    path = f"/apis/{body['apiVersion']}{scope}/{plural}"
    meta = {**body["metadata"], "name": name}
    meta.pop("creationTimestamp", None)
    if not kind:
        meta["namespace"] = place.namespace
        for owner in meta.get("ownerReferences", ()):
            # The garbage collector deletes what belongs to an owner that does not exist.
            cluster = place.ask("GET", place.path("rayclusters", owner["name"]))
            owner |= {"apiVersion": "ray.io/v1", "uid": cluster["metadata"]["uid"]}
    place.ask("POST", path, {**body, "metadata": meta})
    if plural != "podgroups":  # their definition has no subresource
        place.merge(f"{path}/{name}/status", {"status": body["status"]})
    return f"{path}/{name}"


def in_queue(place: Place) -> str:
    """A suspended cluster `demo` in LocalQueue team-a. Returns the path of its Workload."""
    place.cluster(suspend=True)
    place.merge(place.path("rayclusters", "demo"), {"metadata": {"labels": QUEUE}})
    make(place, "clusterqueues", cluster_queue())
    make(place, "localqueues", local_queue(cluster_queue=f"gpus-{place.namespace}"))
    body = workload("raycluster-demo-1", "demo", kind="RayCluster", conditions=(PENDING,))
    return make(place, "workloads", body)


async def stored(backend: KubeRayBackend, until: Any) -> Store:
    """The store after the first event at which `until` of it holds."""
    store = Store()
    async for event in backend.watch():
        store.apply(event)
        if until(store):
            return store
    raise AssertionError("the watch ended")


@pytest.mark.usefixtures("kueue")
async def test_cluster_in_a_queue_of_kueue_until_its_quota_is_reserved(place: Place) -> None:
    path = in_queue(place)
    async with place.backend() as backend:
        store = await stored(
            backend,
            lambda store: store.queues.entries and any(g.note for g in store.groups.values()),
        )
        assert (store.health, store.health_message) == (ClusterHealth.SUSPENDED, SUMMARY)
        assert store.queue == "team-a"
        assert [group.note for group in store.groups.values()] == [SUMMARY]
        assert store.queues.missing == ()
        found = cluster_chain(store)
        assert found.summary == SUMMARY
        assert found.blocking is not None
        assert found.blocking.stage is WaitStage.QUOTA
        place.merge(f"{path}/status", {"status": {"conditions": [RESERVED]}})
        listed = await seen(
            backend,
            QueuesListed,
            lambda event: any(each.state is QueueState.RESERVED for each in event.entries),
        )
    assert [entry.owner for entry in listed.entries] == ["demo"]


@pytest.mark.usefixtures("kueue")
async def test_rights_of_the_viewers_roles_show_the_queue(place: Place) -> None:
    in_queue(place)
    roles = ("cockpit-viewer", "cockpit-nodes-viewer", "cockpit-queues-viewer")
    rules = [
        rule
        for document in yaml.safe_load_all(RBAC.read_text())
        if document["metadata"]["name"] in roles
        for rule in document["rules"]
    ]
    kubeconfig = place.user("viewer", rules, everywhere=True)
    async with place.backend(kubeconfig=kubeconfig) as backend:
        listed = await seen(backend, QueuesListed, lambda event: bool(event.entries))
    assert listed.missing == ()
    assert listed.entries[0].summary == SUMMARY


@pytest.mark.usefixtures("kueue")
async def test_right_that_is_missing_is_named_and_the_rest_is_shown(place: Place) -> None:
    in_queue(place)
    watch = ["get", "list", "watch"]
    rules = [
        {"apiGroups": ["ray.io"], "resources": ["rayclusters", "rayjobs"], "verbs": watch},
        {"apiGroups": [""], "resources": ["pods", "events", "nodes"], "verbs": watch},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": watch},
    ]
    kubeconfig = place.user("partly", rules, everywhere=True)
    async with place.backend(kubeconfig=kubeconfig) as backend:
        listed = await seen(backend, QueuesListed, lambda event: bool(event.entries))
        store = await stored(backend, lambda store: bool(store.queues.entries))
    localqueues, clusterqueues = listed.missing
    assert localqueues.startswith("you may not read localqueues.kueue.x-k8s.io: ")
    assert clusterqueues.startswith("you may not read clusterqueues.kueue.x-k8s.io: ")
    assert listed.entries[0].summary == "queued 1st in team-a"
    assert "4 more needed" in next(
        link.text for link in cluster_chain(store).links if link.stage is WaitStage.QUOTA
    )


@pytest.mark.usefixtures("volcano")
async def test_pods_of_a_pod_group_wait_for_their_queue(place: Place) -> None:
    place.cluster()
    place.pod("demo-head-aaaaa", "headgroup", runs=True, schedulerName="volcano")
    queue = volcano_queue()
    make(place, "queues", queue)
    body = pod_group(queue=f"team-a-{place.namespace}")
    path = make(place, "podgroups", body)
    summary = f"queued 1st in team-a-{place.namespace}: 4 of 8 GPUs in use"
    async with place.backend() as backend:
        listed = await seen(
            backend, PodsListed, lambda event: any(pod.reason == summary for pod in event.pods)
        )
        store = await stored(backend, lambda store: bool(store.queues.entries and store.pods))
        assert [pod.stage for pod in listed.pods] == [WaitStage.NODE_ROOM]
        assert pod_chain(store, "demo-head-aaaaa").summary == summary
        why = "2/3 tasks in gang unschedulable: pod group is not ready, 3 minAvailable"
        status = pod_group(phase="Inqueue", running=1, unschedulable=why)["status"]
        place.merge(path, {"status": status})
        store = await stored(
            backend, lambda store: any(entry.running for entry in store.queues.entries)
        )
    gang = next(link for link in cluster_chain(store).links if link.stage is WaitStage.GANG)
    assert gang.text == f"1 of 3 pods run; all of them start together. Volcano: {why}."


async def test_claim_without_a_volume_is_named(place: Place) -> None:
    place.cluster()
    body = {
        "metadata": {"name": "shared"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "none",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    place.ask("POST", place.path("persistentvolumeclaims"), body)
    volume = {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}
    place.pod("demo-gpu-worker-aaaaa", volumes=[volume])
    async with place.backend() as backend:
        store = await stored(
            backend, lambda store: any(each.phase == "Pending" for each in store.queues.claims)
        )
    found = pod_chain(store, "demo-gpu-worker-aaaaa")
    assert found.blocking is not None
    assert found.blocking.stage is WaitStage.VOLUME
    assert found.summary.startswith("volume: Claim shared is Pending")


async def test_cluster_that_is_ready_sends_no_request_about_queues(place: Place) -> None:
    place.ready_cluster()
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    kubeconfig = place.user("idle", everything, everywhere=True)
    async with place.backend(kubeconfig=kubeconfig) as backend:
        await seen(backend, SourceHealth, lambda event: event.source == "backend" and event.ok)
        await seen(backend, ClusterSeen, lambda event: event.health is ClusterHealth.READY)
        await seen(backend, GroupsListed)
    requests = [
        json.loads(line)["requestURI"]
        for line in place.testbed.plane.audit_log.read_text().splitlines()
        if f"idle-{place.namespace}" in line
    ]
    assert any("/rayclusters" in uri for uri in requests)
    assert not [uri for uri in requests if "kueue" in uri or "volcano" in uri]
