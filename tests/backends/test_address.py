"""A cluster by its dashboard's address: watched and given jobs, never changed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cockpit.backends.address import AddressBackend
from cockpit.backends.local import LocalBackend
from cockpit.backends.protocol import VERBS
from cockpit.backends.ray_token import ray_token
from cockpit.model.cluster import ClusterHealth, DashboardRoute, NodeType
from cockpit.model.error import UsageError
from cockpit.model.event import ClusterSeen, Event, PodsListed, SourceHealth
from cockpit.model.scale import ScaleRequest

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
