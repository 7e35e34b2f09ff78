"""Changes to a RayCluster on a real API server, and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cockpit.backends.kuberay.api.client import KubeError
from cockpit.backends.protocol import VERBS, Change
from cockpit.model.error import (
    ChangedError,
    CockpitError,
    ExitCode,
    NotAllowedError,
    ReplacedError,
    UnreachableError,
    UsageError,
)
from cockpit.model.scale import ScaleRequest
from tests.backends.kuberay.by_hand import Place
from tests.cluster.raycluster import Group


def group_of(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = place.ask("GET", place.path("rayclusters", "demo"))["spec"][
        "workerGroupSpecs"
    ][0]
    return found


async def test_scale_patches_only_what_it_reports(place: Place) -> None:
    place.ready_cluster(workers=2)
    async with place.backend() as backend:
        scaled = await backend.scale(ScaleRequest("gpu", 3))
        assert (scaled.group, scaled.before, scaled.after, scaled.warning) == ("gpu", 2, 3, "")
        assert group_of(place)["replicas"] == 3
        assert "scaleStrategy" not in group_of(place)
        again = await backend.scale(ScaleRequest("gpu", 3))
        assert (again.before, again.after) == (3, 3)
        bounds = await backend.scale(ScaleRequest("gpu", min_replicas=4, max_replicas=6))
        assert (bounds.before, bounds.after) == (3, 4)
        assert "below the group's min of 4" in bounds.warning
    group = group_of(place)
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (4, 4, 6)


async def test_named_pods_go_and_their_names_are_taken_out_again(place: Place) -> None:
    place.ready_cluster(workers=2)

    def operator() -> None:
        """Acts on workersToDelete, as the real one does."""

        def named() -> list[str]:
            return group_of(place).get("scaleStrategy", {}).get("workersToDelete") or []

        place.wait(lambda: bool(named()), "workersToDelete")
        for name in named():
            place.ask("DELETE", place.path("pods", name))

    async with place.backend() as backend, asyncio.timeout(20):
        acting = asyncio.create_task(asyncio.to_thread(operator))
        scaled = await backend.scale(ScaleRequest("gpu", remove=("demo-gpu-worker-aaaa1",)))
        await acting
    assert (scaled.before, scaled.after, scaled.warning) == (2, 1, "")
    group = group_of(place)
    assert (group["replicas"], group["scaleStrategy"]["workersToDelete"]) == (1, [])


async def test_a_change_that_loses_a_race_is_made_again(place: Place) -> None:
    place.ready_cluster(workers=1)
    async with place.backend() as backend:
        before = backend.client.patch
        raced: list[int] = []

        async def raced_patch(path: str, body: Any, **more: Any) -> Any:
            if not raced:
                raced.append(1)
                place.merge(
                    place.path("rayclusters", "demo"), {"metadata": {"labels": {"other": "writer"}}}
                )
                group = {**group_of(place), "maxReplicas": 2}
                place.merge(
                    place.path("rayclusters", "demo"), {"spec": {"workerGroupSpecs": [group]}}
                )
            return await before(path, body, **more)

        backend.client.patch = raced_patch  # type: ignore[method-assign]
        scaled = await backend.scale(ScaleRequest("gpu", 3))
    assert (scaled.after, group_of(place)["replicas"]) == (2, 2)
    assert "max of 2" in scaled.warning


async def test_missing_object_is_named_in_the_error(place: Place) -> None:
    place.ready_cluster()
    other = Place(place.testbed, place.namespace)
    other.cluster("other")
    other.pod("other-head-aaaaa", "headgroup", cluster="other", runs=False)
    async with place.backend() as backend:
        for wrong in (
            backend.scale(ScaleRequest("no-such", 1)),
            backend.scale(ScaleRequest("gpu", 0, remove=("no-such",))),
            backend.delete_pod("no-such", uid="none", grace_s=0),
            backend.exec("no-such", ["true"]),
            backend.manifest("pod", "no-such"),
            backend.describe("group", "no-such"),
            backend.cordon("no-such", True),
            backend.stop_rayjob("no-such", uid="none"),
            backend.delete_rayjob("no-such", uid="none"),
        ):
            with pytest.raises(UsageError, match="no-such"):
                await wrong
        with pytest.raises(UsageError, match="other-head-aaaaa"):
            await backend.delete_pod("other-head-aaaaa", uid="none", grace_s=0)
        with pytest.raises(UsageError, match="no-such"):
            [line async for line in backend.logs("no-such", follow=False)]
    async with place.backend("absent") as backend:
        with pytest.raises(UnreachableError, match="no RayCluster absent"):
            await backend.scale(ScaleRequest("gpu", 1))
        with pytest.raises((UnreachableError, UsageError), match="absent"):
            await backend.suspend(True)


async def test_a_name_of_ill_will_reaches_no_other_object(place: Place) -> None:
    place.ready_cluster()
    nodes = len(place.ask("GET", "/api/v1/nodes")["items"])
    async with place.backend() as backend:
        for name in ("../nodes/sim-1", "..%2fnodes", "a/../../nodes/sim-1", "", "a?b=c", "a b"):
            for wrong in (
                backend.delete_pod(name, uid="none", grace_s=0),
                backend.delete_rayjob(name, uid="none"),
                backend.manifest("pod", name),
                backend.cordon(name, True),
            ):
                with pytest.raises(CockpitError):
                    await wrong
    assert len(place.ask("GET", "/api/v1/nodes")["items"]) == nodes
    assert len(place.pods()) == 2


async def test_deleting_a_pod_with_grace_lets_it_end_and_without_takes_it_at_once(
    place: Place,
) -> None:
    place.cluster(groups=[Group(replicas=2)])
    for name in ("demo-gpu-worker-aaaaa", "demo-gpu-worker-bbbbb"):
        place.pod(name, runs=False, terminationGracePeriodSeconds=30)
    async with place.backend() as backend:
        for name, grace_s in (("demo-gpu-worker-aaaaa", 20), ("demo-gpu-worker-bbbbb", 0)):
            await backend.delete_pod(name, uid=uid_of(place, "pods", name), grace_s=grace_s)
    (left,) = place.pods()
    assert left["metadata"]["name"] == "demo-gpu-worker-aaaaa"
    assert left["metadata"]["deletionGracePeriodSeconds"] == 20


def uid_of(place: Place, plural: str, name: str) -> str:
    return str(place.ask("GET", place.path(plural, name))["metadata"]["uid"])


@pytest.mark.parametrize("how", ["delete_pod", "evict_pod", "isolate"])
async def test_pod_replaced_just_before_the_request_is_left_alone(place: Place, how: str) -> None:
    """The UID is part of the request itself: a check before it would be subject to a race."""
    place.ready_cluster()
    name = "demo-gpu-worker-aaaa0"
    shown = uid_of(place, "pods", name)

    def replace_it() -> None:
        place.ask("DELETE", place.path("pods", name), {"gracePeriodSeconds": 0})
        place.wait(lambda: not place.has(place.path("pods", name)), "pod gone")
        place.pod(name)

    async with place.backend() as backend:
        before = backend._pod

        async def raced(wanted: str) -> Any:
            raw = await before(wanted)
            await asyncio.to_thread(replace_it)
            return raw

        backend._pod = raced  # type: ignore[method-assign,assignment]
        more: dict[str, Any] = {"name": "no-net"} if how == "isolate" else {"grace_s": 0}
        with pytest.raises(ReplacedError, match=f"Pod {name} was replaced since the plan"):
            # Raised only where the API server refuses the UID, and then it changes nothing. Whether
            # the new pod is there later proves nothing: its simulated node may have ended it.
            await getattr(backend, how)(name, uid=shown, **more)


async def test_cluster_created_again_under_its_name_is_left_alone(place: Place) -> None:
    place.ready_cluster(workers=2)
    shown = uid_of(place, "rayclusters", "demo")
    place.ask("DELETE", place.path("rayclusters", "demo"))
    place.wait(lambda: not place.has(place.path("rayclusters", "demo")), "cluster gone")
    place.cluster(groups=[Group(replicas=2)])
    async with place.backend() as backend:
        for change in (
            backend.scale(ScaleRequest("gpu", 0, uid=shown)),
            backend.suspend(True, uid=shown),
        ):
            with pytest.raises(ReplacedError, match="RayCluster demo was replaced"):
                await change
    assert group_of(place)["replicas"] == 2
    assert not place.ask("GET", place.path("rayclusters", "demo"))["spec"].get("suspend")


async def test_suspend_and_cordon_go_and_come_back(place: Place) -> None:
    place.ready_cluster()
    async with place.backend() as backend:
        for suspended in (True, False):
            await backend.suspend(suspended)
            spec = place.ask("GET", place.path("rayclusters", "demo"))["spec"]
            assert spec.get("suspend", False) is suspended
        for cordoned in (True, False):
            await backend.cordon("sim-1", cordoned)
            spec = place.ask("GET", "/api/v1/nodes/sim-1")["spec"]
            assert spec.get("unschedulable", False) is cordoned


async def test_a_change_leaves_an_event_on_its_object(place: Place) -> None:
    place.ready_cluster()
    async with place.backend() as backend:
        await backend.announce(Change("scale", "RayCluster", "demo", "1", "3"))
        await backend.announce(Change("delete-pod", "Pod", "demo-gpu-worker-aaaa0"))
        await backend.announce(Change("scale", "RayCluster", "no-such", "1", "3"))
        described = await backend.describe("cluster", "demo")
    events = place.ask("GET", place.path("events"))["items"]
    ours = {e["involvedObject"]["kind"]: e for e in events if e["reason"].startswith("Cockpit")}
    assert set(ours) == {"RayCluster", "Pod"}
    assert "1 → 3" in ours["RayCluster"]["message"]
    assert "admin" in ours["RayCluster"]["message"]
    assert ours["RayCluster"]["reportingComponent"] == "cockpit"
    assert "CockpitScale" in described


async def test_objects_are_shown_as_yaml_and_described(place: Place) -> None:
    place.ready_cluster()
    async with place.backend() as backend:
        shown = {
            kind: (await backend.manifest(kind, name), await backend.describe(kind, name))
            for kind, name in (
                ("cluster", "demo"),
                ("group", "gpu"),
                ("pod", "demo-gpu-worker-aaaa0"),
                ("node", "sim-0"),
            )
        }
        with pytest.raises(UsageError, match="kind"):
            await backend.manifest("secret", "demo")
    assert all("managedFields" not in yaml for yaml, _ in shown.values())
    assert "workerGroupSpecs:" in shown["cluster"][0]
    assert shown["group"][0].startswith("groupName: gpu") or "groupName: gpu" in shown["group"][0]
    assert "Health:" in shown["cluster"][1]
    assert "1 ready of 1" in shown["cluster"][1]
    assert "demo-gpu-worker-aaaa0" in shown["group"][1]
    assert "Node:" in shown["pod"][1]
    assert "nvidia.com/gpu 8" in shown["node"][1]
    assert all("Events" in text for _, text in shown.values())


async def test_missing_permission_is_reported_and_the_change_refused(
    place: Place,
) -> None:
    place.ready_cluster()
    kubeconfig = place.testbed.plane.user_kubeconfig("cockpit-nobody")
    async with place.backend(kubeconfig=kubeconfig) as backend:
        able = await backend.capabilities()
        assert set(able) == set(VERBS)
        assert not any(capability.allowed for capability in able.values())
        where = f"in namespace {place.namespace}"
        assert f"you may not patch rayclusters.ray.io {where}" in able["scale"].why_not
        assert "cockpit-nobody" in able["scale"].why_not
        assert "nodes" in able["cordon"].why_not
        for refused in (
            backend.scale(ScaleRequest("gpu", 1)),
            backend.delete_pod("demo-gpu-worker-aaaa0", uid="none", grace_s=0),
            backend.suspend(True),
            backend.cordon("sim-0", True),
            backend.manifest("cluster", "demo"),
        ):
            with pytest.raises(NotAllowedError) as raised:
                await refused
            assert raised.value.code is ExitCode.NOT_ALLOWED
        await backend.announce(Change("scale", "RayCluster", "demo"))


async def test_an_administrator_may_do_everything(place: Place) -> None:
    place.ready_cluster()
    async with place.backend() as backend:
        asked = backend.client.requests
        able = await backend.capabilities()
        assert all(capability.allowed for capability in able.values())
        assert backend.client.requests - asked <= 20


async def test_a_kind_that_is_not_installed_is_reported_as_such(place: Place) -> None:
    async with place.backend() as backend:
        with pytest.raises(KubeError) as raised:
            await backend.client.get(f"/apis/ray.io/v9/namespaces/{place.namespace}/rayclusters")
    assert raised.value.status == 404


async def test_scale_of_a_group_that_was_changed_since_is_refused(place: Place) -> None:
    place.ready_cluster(workers=2)
    async with place.backend() as backend:
        await backend.scale(ScaleRequest("gpu", 3, expected=2))
        with pytest.raises(ChangedError, match="Group gpu has 3 replicas now, not 2"):
            await backend.scale(ScaleRequest("gpu", 1, expected=2))
    assert group_of(place)["replicas"] == 3


async def test_node_that_was_replaced_under_its_name_is_not_uncordoned(place: Place) -> None:
    node = place.ask("GET", "/api/v1/nodes/sim-1")
    async with place.backend() as backend:
        await backend.cordon("sim-1", True, uid=node["metadata"]["uid"])
        with pytest.raises(ReplacedError, match="Node sim-1 was replaced"):
            await backend.cordon("sim-1", False, uid="another")
        assert place.ask("GET", "/api/v1/nodes/sim-1")["spec"]["unschedulable"]
        await backend.cordon("sim-1", False, uid=node["metadata"]["uid"])
    assert "unschedulable" not in place.ask("GET", "/api/v1/nodes/sim-1")["spec"]


async def test_command_is_not_run_in_a_pod_of_a_reused_name(place: Place) -> None:
    place.ready_cluster(workers=1)
    name = place.pods()[0]["metadata"]["name"]
    async with place.backend() as backend:
        with pytest.raises(ReplacedError, match=f"Pod {name} was replaced"):
            await backend.exec(name, ["true"], uid="another")
