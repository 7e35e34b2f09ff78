"""A cluster by its dashboard's address: watched and given jobs, never changed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cockpit.backends.address import AddressBackend
from cockpit.backends.local import LocalBackend
from cockpit.backends.protocol import VERBS
from cockpit.backends.ray_token import ray_token
from cockpit.insight.waiting.chain import cluster_chain
from cockpit.model.cluster import ClusterHealth, DashboardRoute, NodeType
from cockpit.model.error import UsageError
from cockpit.model.event import ClusterSeen, Event, GroupsListed, PodsListed, SourceHealth
from cockpit.model.scale import ScaleRequest
from cockpit.store.store import Store
from tests.sources.fake_dashboard import FakeDashboard, autoscaler_answer, node

TOKENS = ("COCKPIT_RAY_TOKEN", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@pytest.fixture(scope="module")
def route(one_worker: LocalBackend) -> DashboardRoute:
    return asyncio.run(one_worker.dashboard())


async def first_look(backend: AddressBackend) -> dict[type[Event], Event]:
    seen: dict[type[Event], Event] = {}
    async with asyncio.timeout(30):
        async for event in backend.watch():
            seen[type(event)] = event
            if isinstance(event, SourceHealth):
                break
    return seen


@pytest.mark.slow
@pytest.mark.ray
async def test_the_nodes_of_a_real_cluster_are_its_pods(route: DashboardRoute) -> None:
    token = route.headers["Authorization"].removeprefix("Bearer ")
    seen = await first_look(AddressBackend(route.base_url, token=lambda: token))
    cluster, pods = seen[ClusterSeen], seen[PodsListed]
    assert isinstance(cluster, ClusterSeen)
    assert (cluster.health, cluster.ref.backend) == (ClusterHealth.READY, "address")
    assert cluster.ray_version
    assert isinstance(pods, PodsListed)
    assert [pod.node_type for pod in pods.pods] == [NodeType.HEAD, NodeType.WORKER]
    assert all(pod.ready and pod.ip for pod in pods.pods)


async def with_autoscaler(**report: Any) -> tuple[ClusterSeen, GroupsListed, PodsListed]:
    """A head and a worker at 10.0.0.11, and this report of the autoscaler."""
    async with FakeDashboard().serve() as fake:
        fake.nodes = [node(), node("b" * 56, head=False)]
        fake.nodes[1]["raylet"]["nodeManagerAddress"] = "10.0.0.11"
        fake.autoscaler = autoscaler_answer(**report)
        seen = await first_look(AddressBackend(fake.route.base_url, token=str))
    cluster, groups, pods = seen[ClusterSeen], seen[GroupsListed], seen[PodsListed]
    assert isinstance(cluster, ClusterSeen)
    assert isinstance(groups, GroupsListed)
    assert isinstance(pods, PodsListed)
    return cluster, groups, pods


async def test_nodes_that_the_autoscaler_launches_are_pods_of_the_group_of_their_type() -> None:
    cluster, groups, pods = await with_autoscaler(
        nodeTypeMapping={"10.0.0.11": "gpu", "127.0.0.10": "head"},
        pendingNodes=[["10.0.0.12", "gpu", "setting-up"], ["10.0.0.11", "gpu", "setting-up"]],
        pendingLaunches={"gpu": 2},
        demand=[[{"GPU": 1.0}, 3], [{"CPU_group_0123": 1.0}, 1]],
    )
    (group,) = groups.groups
    assert (group.name, group.desired, group.ready, group.autoscaled) == ("gpu", 4, 1, True)
    assert group.note == "2 launching"
    waiting = [pod for pod in pods.pods if not pod.ready]
    assert [(pod.name, pod.group, pod.reason) for pod in waiting] == [
        ("10.0.0.12", "gpu", "setting-up")
    ]
    assert cluster.health is ClusterHealth.DEGRADED
    assert cluster.message == "no room for 3 × 1 GPU; 3 nodes launching"
    store = Store()
    for event in (cluster, groups, pods):
        store.apply(event)
    chain = cluster_chain(store)
    assert "3 of 5 pods created: no room for 3 × 1 GPU" in chain.summary
    assert chain.blocking is not None
    assert "logs/monitor.log" in chain.blocking.todo


async def test_failed_launches_and_demand_without_an_autoscaler_are_in_the_message() -> None:
    record = {
        "nodeType": "gpu_worker",
        "isAvailable": False,
        "lastCheckedTimestamp": 1_795_680_546.0,
        "unavailableNodeInformation": {"category": "Quota", "description": "no P5 left"},
    }
    cluster, groups, _ = await with_autoscaler(
        nodeTypeMapping={"b" * 56: f"node_{'b' * 56}"},
        failedNodes=[["10.0.0.13", "gpu_worker"]],
        nodeAvailabilitySummary={"nodeAvailabilities": {"gpuWorker": record}},
        pg_demand=[[{"bundles": [[{"CPU": 1.0, "GPU": 1.0}, 2]], "strategy": "PACK"}, 1]],
        error="Traceback (most recent call last):\nValueError: no credentials",
    )
    assert [(one.name, one.desired, one.autoscaled) for one in groups.groups] == [
        ("workers", 1, False)
    ]
    assert cluster.health is ClusterHealth.READY
    assert cluster.message == (
        "the autoscaler fails: ValueError: no credentials; "
        "no room for a placement group of 2 × (1 CPU, 1 GPU); "
        "last failure: gpu_worker: Quota: no P5 left"
    )


@pytest.mark.slow
@pytest.mark.ray
async def test_a_wrong_token_is_reported_and_does_not_end_the_watch(route: DashboardRoute) -> None:
    seen = await first_look(AddressBackend(route.base_url, token=lambda: "wrong"))
    health = seen[SourceHealth]
    assert isinstance(health, SourceHealth)
    assert not health.ok
    assert "token" in health.error
    assert PodsListed not in seen


async def test_only_jobs_can_be_changed_and_the_rest_reports_why() -> None:
    backend = AddressBackend("http://127.0.0.1:1")
    able = await backend.capabilities()
    assert set(able) == set(VERBS)
    assert [verb for verb in VERBS if able[verb].allowed] == ["launch"]
    assert all(able[verb].why_not for verb in VERBS if verb != "launch")
    with pytest.raises(UsageError, match="scaled"):
        await backend.scale(ScaleRequest("workers", 1))


@pytest.mark.parametrize("url", ["", "head:8265", "ftp://head", "http://"])
def test_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="address"):
        AddressBackend(url)


def test_a_password_in_the_address_is_not_shown() -> None:
    assert str(AddressBackend("http://me:secret@head:8265/").ref) == "address:head:8265"


def test_the_token_is_found_where_rays_tools_keep_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable in TOKENS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ray_token() == ""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("of the home\n")
    assert ray_token() == "of the home"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "gone"))
    with pytest.raises(UsageError, match="gone"):
        ray_token()
    monkeypatch.setenv("COCKPIT_RAY_TOKEN", "ours")
    assert ray_token() == "ours"
