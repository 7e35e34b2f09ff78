"""A RayCluster as events, from a real API server; the operator and its pods are played."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

import pytest

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.backend import KubeRayBackend
from cockpit.model.cluster import ClusterHealth, PodPhase
from cockpit.model.event import (
    ClusterSeen,
    Event,
    GroupsListed,
    JobsListed,
    KubernetesNodesListed,
    Notice,
    PodsListed,
    SourceHealth,
)
from cockpit.model.run import Job
from tests.backends.contract import seen
from tests.backends.kuberay.by_hand import Place
from tests.cluster.raycluster import Group

E = TypeVar("E", bound=Event)
GPUS = {"nvidia.com/gpu": "8"}
HOSTILE = "bad\x1b[2J\x1b]0;owned\x07\u202e"


async def first(backend: KubeRayBackend) -> list[Event]:
    """All events up to the first health report."""
    reported: list[Event] = []
    async with asyncio.timeout(60):
        async for event in backend.watch():
            reported.append(event)
            if isinstance(event, SourceHealth) and event.source == "backend":
                break
    return reported


def of(kind: type[E], events: list[Event]) -> E:
    return next(event for event in events if isinstance(event, kind))


async def test_the_present_comes_first_and_health_when_all_is_listed(place: Place) -> None:
    place.ready_cluster(workers=2)
    async with place.backend() as backend:
        reported = await first(backend)
    assert [type(event) for event in reported][:3] == [ClusterSeen, GroupsListed, PodsListed]
    cluster = of(ClusterSeen, reported)
    assert (cluster.health, cluster.message) == (ClusterHealth.READY, "")
    (group,) = of(GroupsListed, reported).groups
    assert (group.name, group.desired, group.ready) == ("gpu", 1 + 1, 2)
    pods = of(PodsListed, reported)
    assert (pods.more, [pod.ready for pod in pods.pods]) == (False, [True] * 3)
    assert of(KubernetesNodesListed, reported).nodes
    assert of(JobsListed, reported).jobs == ()
    assert of(SourceHealth, reported).ok


async def test_a_pod_that_no_node_can_hold_reports_why_in_one_line(place: Place) -> None:
    place.ready_cluster(workers=1)
    place.merge(
        place.path("rayclusters", "demo"),
        {"spec": {"workerGroupSpecs": None}},
    )
    gpus = {"nvidia.com/gpu": "9"}
    container = {"name": "ray", "image": "none", "resources": {"limits": gpus}}
    place.pod("demo-gpu-worker-big", containers=[container])
    async with place.backend() as backend:
        listed = await seen(
            backend,
            PodsListed,
            lambda event: any("no node" in pod.reason for pod in event.pods),
        )
    (big,) = (pod for pod in listed.pods if pod.name == "demo-gpu-worker-big")
    assert big.reason.startswith("no node has 9 free GPUs (0/")
    assert (big.phase, big.gpus) == (PodPhase.PENDING, 9.0)


async def test_the_head_that_dies_is_down_at_once(place: Place) -> None:
    place.ready_cluster()
    async with place.backend() as backend:
        watching = seen(backend, ClusterSeen, lambda event: event.health is ClusterHealth.DOWN)
        down = asyncio.create_task(watching)
        await seen(backend, ClusterSeen)
        place.ask("DELETE", place.path("pods", "demo-head-aaaaa"))
        text = await asyncio.wait_for(down, 60)
    assert "head" in text.message


async def test_a_cluster_that_is_deleted_and_made_again_is_followed(place: Place) -> None:
    place.ready_cluster()
    healths: list[tuple[str, str]] = []
    async with place.backend() as backend, asyncio.timeout(30):
        async for event in backend.watch():
            if not isinstance(event, ClusterSeen):
                continue
            healths.append((event.health.value, event.message))
            if len(healths) == 1:
                place.ask("DELETE", place.path("rayclusters", "demo"))
            elif event.health is ClusterHealth.DOWN and "was deleted at" in event.message:
                place.cluster()
                place.status(readyWorkerReplicas=1)
            elif event.health is ClusterHealth.READY:
                break
    assert healths[0] == ("ready", "")
    assert healths[-1] == ("ready", "")


async def test_the_rayjob_that_is_tried_again_is_followed_to_its_new_cluster(place: Place) -> None:
    spec = place.cluster("try-1")["spec"]
    place.status("try-1")
    job = {"entrypoint": "python train.py", "backoffLimit": 1, "rayClusterSpec": spec}
    body = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "train"}, "spec": job}
    place.ask("POST", place.path("rayjobs"), body)

    def report(**status: object) -> None:
        place.merge(f"{place.path('rayjobs', 'train')}/status", {"status": status})

    report(jobDeploymentStatus="Running", jobStatus="RUNNING", jobId="j-1", rayClusterName="try-1")
    events: list[Event] = []
    async with place.backend("try-1") as backend, asyncio.timeout(30):
        async for event in backend.watch():
            events.append(event)
            match event:
                case JobsListed(jobs=[Job(deployment="Running", cluster="try-1")]):
                    report(jobDeploymentStatus="Retrying", jobStatus="FAILED", failed=1)
                    place.ask("DELETE", place.path("rayclusters", "try-1"))
                case ClusterSeen(message=message) if "was deleted at" in message:
                    report(jobDeploymentStatus="", jobStatus="", jobId="", rayClusterName="")
                    report(jobDeploymentStatus="Initializing", jobId="j-2", rayClusterName="try-2")
                    place.cluster("try-2")
                case ClusterSeen(ref=ref, uid=uid) if ref.name == "try-2" and uid:
                    break
        assert backend.ref.name == "try-2"
    [moved] = (e for e in events if isinstance(e, Notice) and e.reason == "NewCluster")
    assert moved.message == "try 2 of 2 continues on RayCluster try-2"


async def test_a_cluster_that_is_not_there_is_reported_and_found_when_it_comes(
    place: Place,
) -> None:
    async with place.backend("absent") as backend:
        reported = await first(backend)
        text = f"there is no RayCluster absent in namespace {place.namespace}"
        health = of(SourceHealth, reported)
        assert (health.ok, health.error) == (False, text)
        assert of(ClusterSeen, reported).health in (ClusterHealth.DOWN, ClusterHealth.UNKNOWN)
        # An unrelated object is added and deleted: it was never listed, so it is not reported as
        # deleted.
        place.pod("absent-head-aaaaa", "headgroup", cluster="absent")
        async with asyncio.timeout(60):
            async for event in backend.watch():
                if isinstance(event, ClusterSeen):
                    assert event.message == text
                if isinstance(event, PodsListed) and any(pod.ready for pod in event.pods):
                    break
        coming = asyncio.create_task(seen(backend, GroupsListed, lambda event: bool(event.groups)))
        place.cluster("absent")
        await asyncio.wait_for(coming, 60)


async def test_a_probe_that_fails_and_a_node_that_is_lost_are_reasons(place: Place) -> None:
    place.cluster()
    place.pod("demo-gpu-worker-aaaaa", runs=False)
    running = {"name": "ray", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    running["state"] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    place.pod_status("demo-gpu-worker-aaaaa", phase="Running", containerStatuses=[running])
    lines: list[str] = []
    async with place.backend() as backend, asyncio.timeout(20):
        async for event in backend.watch():
            if not isinstance(event, PodsListed) or not event.pods:
                continue
            reason = event.pods[0].reason
            if not lines:
                place.event("Pod", "demo-gpu-worker-aaaaa", "Unhealthy", "Readiness probe failed")
            elif lines[-1] != reason and reason == "Readiness probe failed":
                place.node(place.missing_node, ready=False)
            elif reason.startswith("its node is lost"):
                break
            lines.append(reason)
    place.ask("DELETE", f"/api/v1/nodes/{place.missing_node}")
    assert "Readiness probe failed" in lines


async def test_gpu_that_the_device_plugin_withdraws_is_reported(place: Place) -> None:
    place.cluster()
    name = place.missing_node
    path = f"/api/v1/nodes/{name}/status"

    def withdrawn(listed: KubernetesNodesListed) -> list[str]:
        return [node.withdrawn for node in listed.nodes if node.name == name]

    place.node(name, ready=True)
    place.merge(path, {"status": dict.fromkeys(("capacity", "allocatable"), GPUS)})
    async with place.backend() as backend:
        reported = asyncio.create_task(
            seen(backend, KubernetesNodesListed, lambda event: any(withdrawn(event)))
        )
        well = await seen(backend, KubernetesNodesListed, lambda event: bool(withdrawn(event)))
        place.merge(path, {"status": {"allocatable": {"nvidia.com/gpu": "7"}}})
        assert withdrawn(await reported) == ["1 of 8 GPUs withdrawn"]
    assert withdrawn(well) == [""]
    place.ask("DELETE", f"/api/v1/nodes/{name}")


async def test_a_namespace_that_does_not_exist_is_a_cluster_that_is_not_there(
    place: Place,
) -> None:
    nowhere = Place(place.testbed, "no-such-namespace")
    async with nowhere.backend() as backend:
        reported = await first(backend)
    assert "no-such-namespace" in of(SourceHealth, reported).error


async def test_a_cluster_without_worker_groups_is_one(place: Place) -> None:
    place.cluster(groups=[])
    place.pod("demo-head-aaaaa", "headgroup")
    place.status()
    async with place.backend() as backend:
        ready = await seen(backend, ClusterSeen, lambda it: it.health is ClusterHealth.READY)
        listed = await seen(backend, GroupsListed)
    assert (ready.message, listed.groups) == ("", ())


async def test_clusters_of_one_name_in_two_namespaces_are_distinguished(place: Place) -> None:
    other = Place.new(place.testbed)
    place.ready_cluster()
    other.cluster(groups=[Group("cpu")])
    async with place.backend() as ours, other.backend() as theirs:
        assert [group.name for group in (await seen(ours, GroupsListed)).groups] == ["gpu"]
        assert [group.name for group in (await seen(theirs, GroupsListed)).groups] == ["cpu"]
        assert str(ours.ref) != str(theirs.ref)


async def test_events_are_reported_once_and_only_those_of_this_cluster(place: Place) -> None:
    place.ready_cluster()
    place.cluster("demo-2")

    def event(kind: str, name: str, reason: str) -> None:
        place.event(kind, name, reason, f"{HOSTILE} {name}")

    event("RayCluster", "demo", "Ours")
    event("Pod", "demo-gpu-worker-aaaa0", "Ours")
    event("RayCluster", "demo-2", "Theirs")
    event("Pod", "demo-2-head-aaaaa", "Theirs")
    notices: list[Notice] = []
    last = False
    async with place.backend() as backend, asyncio.timeout(60):
        async for reported in backend.watch():
            if isinstance(reported, Notice) and reported.reason in ("Ours", "Theirs", "Last"):
                notices.append(reported)
            elif isinstance(reported, SourceHealth) and not last:
                last = True
                event("RayCluster", "demo", "Last")
            if notices and notices[-1].reason == "Last":
                break
    assert sorted((it.kind, it.name, it.reason) for it in notices) == [
        ("Cluster", "demo", "Last"),
        ("Cluster", "demo", "Ours"),
        ("Pod", "demo-gpu-worker-aaaa0", "Ours"),
    ]
    assert all("\x1b" not in it.message and "\u202e" not in it.message for it in notices)


async def test_many_pods_come_page_by_page(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.cluster(groups=[Group(replicas=300, max=300)])
    for number in range(260):
        place.pod(f"demo-gpu-worker-{number:05}", runs=False)
    first_page_seen = asyncio.Event()
    get = KubeClient.get

    async def get_when_seen(
        client: KubeClient, path: str, params: Mapping[str, str] | None = None
    ) -> Any:
        if "continue" in (params or {}):
            await first_page_seen.wait()
        return await get(client, path, params)

    monkeypatch.setattr(KubeClient, "get", get_when_seen)
    listed: list[PodsListed] = []
    async with place.backend() as backend, asyncio.timeout(30):
        async for event in backend.watch():
            if isinstance(event, PodsListed):
                listed.append(event)
                first_page_seen.set()
                if not event.more:
                    break
    assert [(len(event.pods), event.more) for event in (listed[0], listed[-1])] == [
        (250, True),
        (260, False),
    ]


async def test_a_thousand_changes_are_a_handful_of_events(place: Place) -> None:
    place.ready_cluster()
    path = f"{place.path('pods', 'demo-gpu-worker-aaaa0')}/status"

    async def changes() -> None:
        for number in range(100):
            condition = {"type": "Ready", "status": "True", "reason": f"r{number}"}
            body = {"status": {"conditions": [condition], "podIP": f"10.9.8.{number}"}}
            await asyncio.to_thread(place.merge, path, body)

    listed = 0
    async with place.backend() as backend, asyncio.timeout(30):
        changing: asyncio.Task[None] | None = None
        began = asyncio.get_running_loop().time()
        async for event in backend.watch():
            if isinstance(event, SourceHealth) and changing is None:
                changing = asyncio.create_task(changes())
                began = asyncio.get_running_loop().time()
            if isinstance(event, PodsListed) and changing is not None:
                listed += 1
                if any(pod.ip == "10.9.8.99" for pod in event.pods):
                    break
        took_s = asyncio.get_running_loop().time() - began
    assert listed <= took_s * 10 + 2


async def test_a_hostile_object_reaches_no_terminal(place: Place) -> None:
    cluster: dict[str, Any] = place.cluster()
    cluster["metadata"]["annotations"] = {"big": "x" * 200_000, "evil": HOSTILE}
    cluster["spec"]["workerGroupSpecs"][0]["groupName"] = f"gpu{HOSTILE}"
    cluster["spec"]["rayVersion"] = HOSTILE
    place.ask("PUT", place.path("rayclusters", "demo"), cluster)
    place.pod("demo-head-aaaaa", "headgroup", runs=False)
    message = HOSTILE * 100
    place.pod_status("demo-head-aaaaa", phase="Failed", reason="Evicted", message=message)
    async with place.backend() as backend:
        reported = await first(backend)
        yaml = await backend.manifest("cluster", "demo")
        text = await backend.describe("cluster", "demo")
        text += await backend.describe("pod", "demo-head-aaaaa")
    # `repr` writes a control character as its escape.
    assert not any(sign in repr(reported) for sign in ("\\x1b", "\\x07", "\\u202e"))
    assert not any(sign in yaml + text for sign in ("\x1b", "\x07", "\u202e", "\\e"))
    assert (len(yaml), len(text)) < (20_000, 20_000)
    assert "bad" in yaml
    assert "evicted" in repr(reported)


@pytest.mark.parametrize(
    ("resource", "source"),
    [("nodes", "nodes"), ("events", "events"), ("rayjobs", "rayjobs"), ("pods", "pods")],
)
async def test_one_right_that_is_missing_breaks_nothing_else(
    place: Place, resource: str, source: str
) -> None:
    place.ready_cluster()
    rights = {"rayclusters", "rayjobs", "pods", "events", "nodes"} - {resource}
    rule = {
        "apiGroups": ["", "ray.io"],
        "resources": sorted(rights),
        "verbs": ["get", "list", "watch"],
    }
    kubeconfig = place.user(f"cockpit-without-{resource}", [rule], everywhere=True)
    data: dict[str, SourceHealth] = {}
    cluster: ClusterSeen | None = None
    async with place.backend(kubeconfig=kubeconfig) as backend, asyncio.timeout(15):
        async for event in backend.watch():
            if isinstance(event, SourceHealth):
                data[event.source] = event
            if isinstance(event, ClusterSeen):
                cluster = event
            if {"backend", f"backend:{source}"} <= data.keys():
                break
    assert data["backend"].ok
    refused = data[f"backend:{source}"]
    assert not refused.ok
    assert resource in refused.error
    assert cluster is not None
    assert cluster.health is ClusterHealth.READY
