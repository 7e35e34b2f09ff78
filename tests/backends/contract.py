"""The contract of all backends: subclass `BackendContract` and give it a `backend` fixture.

The fixture's cluster is ready, and its group `gpu` has one worker. Each test restores this state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import httpx
import pytest

from cockpit.backends.protocol import VERBS, Backend
from cockpit.model.cluster import ClusterHealth, NodeType, Pod, PodPhase
from cockpit.model.error import ReplacedError, UsageError
from cockpit.model.event import ClusterSeen, Event, GroupsListed, PodsListed, SourceHealth
from cockpit.model.scale import ScaleRequest

GROUP = "gpu"
TIMEOUT_S = 900.0

E = TypeVar("E", bound=Event)


async def seen(
    backend: Backend, kind: type[E], until: Callable[[E], bool] = lambda event: True
) -> E:
    """The first event of the kind that satisfies `until`."""
    async with asyncio.timeout(TIMEOUT_S):
        async for event in backend.watch():
            if isinstance(event, kind) and until(event):
                return event
    raise AssertionError("the watch ended by itself")


async def workers(backend: Backend) -> list[Pod]:
    listed = await seen(backend, PodsListed, lambda event: not event.more)
    return [pod for pod in listed.pods if is_living_worker(pod)]


def is_living_worker(pod: Pod) -> bool:
    return pod.node_type is NodeType.WORKER and pod.phase is not PodPhase.FAILED


def one_ready_worker(listed: PodsListed) -> bool:
    return [pod.ready for pod in listed.pods if is_living_worker(pod)] == [True]


class BackendContract:
    async def test_watch_yields_the_present_first(self, backend: Backend) -> None:
        first: list[Event] = []
        async with asyncio.timeout(TIMEOUT_S):
            async for event in backend.watch():
                first.append(event)
                if isinstance(event, SourceHealth):
                    break
        kinds = [type(event) for event in first]
        assert kinds[:3] == [ClusterSeen, GroupsListed, PodsListed]
        assert all(event.source == "backend" for event in first)
        cluster, groups, pods = first[:3]
        assert isinstance(cluster, ClusterSeen)
        assert (cluster.ref, cluster.health) == (backend.ref, ClusterHealth.READY)
        assert isinstance(groups, GroupsListed)
        assert [(group.name, group.desired, group.ready) for group in groups.groups] == [
            (GROUP, 1, 1)
        ]
        assert isinstance(pods, PodsListed)
        assert sorted(pod.node_type for pod in pods.pods if pod.ready) == ["head", "worker"]

    async def test_the_dashboard_answers_with_the_routes_headers_alone(
        self, backend: Backend
    ) -> None:
        route = await backend.dashboard()
        assert all(value not in repr(route) for value in route.headers.values())
        transport = httpx.AsyncHTTPTransport(
            verify=route.tls or True, uds=route.socket_path or None
        )
        async with httpx.AsyncClient(base_url=route.base_url, transport=transport) as client:
            answer = await client.get("/api/version", headers=route.headers)
            refused = [
                (await client.get(path)).status_code for path in ("/api/version", "/api/jobs/")
            ]
        assert answer.json()["ray_version"]
        assert refused == [401, 401]

    async def test_capabilities_name_every_verb(self, backend: Backend) -> None:
        capabilities = await backend.capabilities()
        assert set(capabilities) == set(VERBS)
        assert all(
            capabilities[verb].allowed for verb in ("scale", "delete_pod", "exec", "logs", "launch")
        )
        assert all(capability.allowed or capability.why_not for capability in capabilities.values())

    async def test_exec_gives_code_and_both_streams(self, backend: Backend) -> None:
        (pod,) = await workers(backend)
        script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
        result = await backend.exec(pod.name, ["python", "-c", script])
        assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")

    async def test_exec_of_a_command_that_is_not_there_is_127(self, backend: Backend) -> None:
        (pod,) = await workers(backend)
        assert (await backend.exec(pod.name, ["no-such-command"])).exit_code == 127

    async def test_logs_end_without_follow_and_keep_to_the_number_of_lines(
        self, backend: Backend
    ) -> None:
        (pod,) = await workers(backend)
        everything = [line async for line in backend.logs(pod.name, follow=False)]
        last = [line async for line in backend.logs(pod.name, follow=False, lines=2)]
        assert len(everything) > 2
        assert len(last) == 2
        assert not any("\n" in line or "\x1b" in line for line in everything)

    async def test_missing_object_is_named_in_the_error(self, backend: Backend) -> None:
        with pytest.raises(UsageError, match="no-such-pod"):
            await backend.delete_pod("no-such-pod", uid="none", grace_s=0)
        with pytest.raises(UsageError, match="no-such-pod"):
            await backend.exec("no-such-pod", ["true"])
        with pytest.raises(UsageError, match="no-such-group"):
            await backend.scale(ScaleRequest("no-such-group", 1))

    async def test_pod_that_was_replaced_under_its_name_is_not_deleted(
        self, backend: Backend
    ) -> None:
        (pod,) = await workers(backend)
        assert pod.uid
        with pytest.raises(ReplacedError, match=f"Pod {pod.name} was replaced since the plan"):
            await backend.delete_pod(pod.name, uid="of-the-one-before", grace_s=0)
        assert [found.uid for found in await workers(backend)] == [pod.uid]

    async def test_cluster_that_was_created_again_under_its_name_is_not_scaled(
        self, backend: Backend
    ) -> None:
        cluster = await seen(backend, ClusterSeen)
        assert cluster.uid
        with pytest.raises(ReplacedError, match="was replaced since the plan"):
            await backend.scale(ScaleRequest(GROUP, 0, uid="of-the-one-before"))
        scaled = await backend.scale(ScaleRequest(GROUP, 1, uid=cluster.uid))
        assert (scaled.before, scaled.after) == (1, 1)

    async def test_scale_is_clamped_and_reports_it(self, backend: Backend) -> None:
        before = await seen(backend, GroupsListed)
        scaled = await backend.scale(ScaleRequest(GROUP, 50, max_replicas=1))
        assert (scaled.before, scaled.after) == (1, 1)
        assert "50" in scaled.warning
        await backend.scale(ScaleRequest(GROUP, max_replicas=before.groups[0].max))

    async def test_a_killed_pod_is_seen_failed_and_another_takes_its_place(
        self, backend: Backend
    ) -> None:
        (victim,) = await workers(backend)
        await backend.delete_pod(victim.name, uid=victim.uid, grace_s=0)

        def gone(listed: PodsListed) -> bool:
            return victim.name not in {pod.name for pod in listed.pods if is_living_worker(pod)}

        await seen(backend, PodsListed, gone)
        await seen(backend, PodsListed, one_ready_worker)
        (replacement,) = await workers(backend)
        assert replacement.name != victim.name
        assert replacement.ip != victim.ip
