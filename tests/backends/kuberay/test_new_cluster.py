"""What there is for the cluster of a RayJob, read from a real API server. Nothing is created."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.backends.kuberay.resources import rayjob
from cockpit.backends.protocol import RayJobSpec
from cockpit.model.new_cluster import NewCluster, QuotaLeft
from cockpit.preflight.checks.new_cluster import findings, placed
from cockpit.preflight.demand import Demand
from cockpit.preflight.finding import Finding, State
from tests.backends.kuberay.by_hand import Place
from tests.backends.kuberay.queue_objects import (
    cluster_queue,
    local_queue,
    volcano_queue,
)
from tests.backends.kuberay.test_queue_watch import installed, make
from tests.cluster import module_crds
from tests.cluster.raycluster import Group
from tests.cluster.testbed import Testbed

JOB = RayJobSpec("new", "python -m x", own_cluster=True, package=b"zip")
DEMAND = Demand(workers=2, gpus=1.0, cpus=0.0)
GROUP = Group(replicas=2, gpus=4)


@pytest.fixture(scope="module")
def queues(control_plane: Testbed) -> Iterator[None]:
    yield from installed(control_plane, [*module_crds.kueue(), *module_crds.volcano()])


async def read(place: Place, spec: RayJobSpec = JOB, **who: Any) -> NewCluster:
    async with place.backend(**who) as backend:
        return await backend.new_cluster(spec, may_try=True)


def rows(new: NewCluster, demand: Demand = DEMAND) -> dict[str, Finding]:
    return {one.name: one for one in findings(new, demand)}


def with_spec(place: Place, groups: Group = GROUP, **spec: Any) -> None:
    """A cluster whose pods have these fields of a PodSpec."""
    made = place.cluster(groups=[groups])
    body = made["spec"]
    for part in (body["headGroupSpec"], *body["workerGroupSpecs"]):
        part["template"]["spec"] |= spec
    place.merge(place.path("rayclusters", "demo"), {"spec": body})


async def test_pods_and_room_of_the_nodes_are_read_and_nothing_is_created(place: Place) -> None:
    place.cluster(groups=[GROUP])
    new = await read(place)
    head, workers = new.pods
    assert (head.group, head.count, head.rank_cpus) == ("", 1, 0.0)
    assert (workers.group, workers.count, workers.gpus, workers.rank_gpus) == ("gpu", 2, 4.0, 4.0)
    assert workers.memory_bytes == 256 * 2**20
    assert new.nodes is not None
    simulated = {node.name: node for node in new.nodes if node.name.startswith("sim-")}
    assert {node.takes for node in simulated.values()} == {("", "gpu")}
    assert all(0 < node.cpus <= 96 and node.gpus <= 8 for node in simulated.values())
    assert new.is_free
    assert new.is_accepted, new.refused
    assert (new.missing, new.unknown, new.queue) == ((), (), None)
    assert not place.has(place.path("rayjobs", "new"))
    found = rows(new)
    assert {one.state for one in found.values()} <= {State.OK, State.WARNING}, found
    assert found["RayJob"].state is found["room"].state is found["node room"].state is State.OK


async def test_pods_of_other_clusters_take_room_on_the_nodes(place: Place) -> None:
    place.cluster(groups=[Group(replicas=4, gpus=4)])
    before = placed(await read(place))["gpu"]
    resources = {"limits": {"nvidia.com/gpu": "8"}}
    container = {"name": "other", "image": "localhost/none", "resources": resources}
    place.pod("other", containers=[container])

    def is_placed() -> bool:
        [other] = [pod for pod in place.pods() if pod["metadata"]["name"] == "other"]
        return bool(other["spec"].get("nodeName"))

    place.wait(is_placed, "placed")
    new = await read(place)
    assert placed(new)["gpu"] == before - 2
    room = rows(new)["node room"]
    assert room.state is State.WARNING
    assert f"{before - 2} of 4 pods fit into the room that other pods leave." in room.found
    assert room.found.startswith("Group gpu (0.1 CPUs, 256 MiB, 4 GPUs a pod): "), room.found


async def test_selector_without_a_node_is_named(place: Place) -> None:
    with_spec(place, nodeSelector={"gpu": "h100"})
    room = rows(await read(place))["node room"]
    assert room.state is State.WARNING
    assert "no node matches its node selector and tolerations" in room.found


async def test_quota_of_the_namespace_counts_all_pods_of_the_new_cluster(place: Place) -> None:
    place.cluster(groups=[GROUP])
    hard = {"pods": "2", "requests.nvidia.com/gpu": "16", "limits.memory": "100Gi"}
    body = {"metadata": {"name": "team"}, "spec": {"hard": hard}}
    place.ask("POST", place.path("resourcequotas"), body)
    new = await read(place)
    assert QuotaLeft("team", "pods", 3.0, 2.0) in new.quotas
    quota = rows(new)["quota"]
    assert quota.state is State.FAILED
    assert quota.found == "team is too small for the new cluster: pods 3 of 2 left."
    fits = await read(place, replace(JOB, replicas={"gpu": 1}))
    assert rows(fits, replace(DEMAND, workers=4))["quota"].state is State.OK
    assert rows(fits, replace(DEMAND, workers=5))["room"].state is State.FAILED


async def test_claim_secret_account_and_priority_that_are_missing_are_named(place: Place) -> None:
    keys = {"name": "x", "image": "a:1", "envFrom": [{"secretRef": {"name": "s3"}}]}
    volume = {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}
    with_spec(
        place,
        serviceAccountName="ray",
        priorityClassName="ray-worker-of-nobody",
        imagePullSecrets=[{"name": "registry"}],
        containers=[keys],
        volumes=[volume],
    )
    new = await read(place)
    assert new.missing == (
        "PriorityClass ray-worker-of-nobody",
        "Secret registry",
        "Secret s3",
        "ServiceAccount ray",
    )
    found = rows(new)
    assert found["objects"].state is found["claim"].state is State.FAILED
    assert found["image"].found == "a:1"
    for kind in ("s3", "registry"):
        place.ask("POST", place.path("secrets"), {"metadata": {"name": kind}})
    claim = {
        "metadata": {"name": "shared"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "none",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    place.ask("POST", place.path("persistentvolumeclaims"), claim)
    new = await read(place)
    assert not [each for each in new.missing if each.startswith("Secret")]
    assert rows(new)["claim"].found.startswith("Claim shared is Pending")


async def test_user_without_rights_learns_what_was_not_read(place: Place) -> None:
    place.cluster(groups=[GROUP])
    rules = [{"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get"]}]
    new = await read(place, kubeconfig=place.user("reader", rules))
    assert new.nodes is None
    assert not new.is_accepted
    assert "rayjobs" in new.refused
    unknown = "; ".join(new.unknown)
    for what in ("nodes: ", "pods of all namespaces: ", "quotas: "):
        assert what in unknown
    assert new.unread == ("ServiceAccount default",)
    found = rows(new)
    assert found["RayJob"].state is State.FAILED
    assert found["objects"].found == "You do not have permission to read ServiceAccount default."


async def test_field_that_the_definition_lacks_is_refused_by_the_dry_run(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the definitions of an older KubeRay."""
    place.cluster(groups=[GROUP])
    original = rayjob.resource

    def newer(*args: Any) -> dict[str, Any]:
        made = original(*args)
        made["kindOfANewerKubeRay"] = 1
        return made

    monkeypatch.setattr(rayjob, "resource", newer)
    new = await read(place)
    assert 'unknown field "kindOfANewerKubeRay"' in new.refused
    row = rows(new)["RayJob"]
    assert row.state is State.FAILED
    assert row.fix.startswith("Upgrade KubeRay's resource definitions")


@pytest.mark.usefixtures("queues")
async def test_queue_of_kueue_is_asked_for_all_pods_together(place: Place) -> None:
    place.cluster(groups=[GROUP])
    body = cluster_queue(used=4, nominal=16, pending=0)
    body["spec"]["resourceGroups"][0]["coveredResources"] += ["cpu", "memory"]
    others = [{"name": "cpu", "nominalQuota": "9"}, {"name": "memory", "nominalQuota": "99Gi"}]
    body["spec"]["resourceGroups"][0]["flavors"][0]["resources"] += others
    make(place, "clusterqueues", body)
    make(place, "localqueues", local_queue(cluster_queue=f"gpus-{place.namespace}"))

    async def row(spec: RayJobSpec) -> Finding:
        found = rows(await read(place, spec))
        return next(one for name, one in found.items() if name.startswith("queue "))

    queued = replace(JOB, queue="team-a")
    one = await row(queued)
    assert (one.name, one.state) == ("queue team-a", State.OK)
    one = await row(replace(queued, replicas={"gpu": 4}))
    assert one.state is State.WARNING
    assert one.found == (
        "The cluster waits in it: 4 of 16 GPUs in use, and the cluster asks for 16 GPUs."
    )
    one = await row(replace(queued, replicas={"gpu": 5}))
    assert one.state is State.FAILED
    assert one.found == "It can never admit the new cluster: 20 GPUs of at most 16 GPUs."
    one = await row(replace(JOB, queue="nobody"))
    assert (one.state, one.found) == (
        State.FAILED,
        "queue nobody: there is no LocalQueue nobody.",
    )


@pytest.mark.usefixtures("queues")
async def test_queue_of_volcano_is_asked_too(place: Place) -> None:
    place.cluster(groups=[GROUP])
    name = make(place, "queues", volcano_queue()).rpartition("/")[2]
    new = await read(place, replace(JOB, queue=f"volcano:{name}"))
    assert new.queue is not None
    assert (new.queue.manager, new.queue.queue_problem) == ("volcano", "")
    assert {use.resource for use in new.queue.quota} >= {"nvidia.com/gpu"}
    gone = await read(place, replace(JOB, queue="volcano:nobody"))
    assert rows(gone)["queue nobody"].state is State.FAILED
