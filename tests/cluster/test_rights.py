"""manifests/kubernetes/base/rbac.yaml, proved: each verb works with exactly those rights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from msgspec.structs import replace

from cockpit.backends.kuberay.api.port_forward import PortForward
from cockpit.backends.kuberay.backend import KubeRayBackend
from cockpit.backends.protocol import Change, RayJobSpec
from cockpit.launch import submission
from cockpit.model.error import CockpitError, NotAllowedError
from cockpit.model.event import KubernetesNodesListed, Notice, PodsListed, SourceHealth
from cockpit.model.scale import ScaleRequest
from cockpit.sources.ray.dashboard import Dashboard
from tests.cluster.fixtures import RealCluster

MANIFEST = Path(__file__).parents[2] / "manifests" / "kubernetes" / "base" / "rbac.yaml"
VIEWER, OPERATOR = "cockpit-test-viewer", "cockpit-test-operator"
VIEWERS_ROLES = (
    "cockpit-viewer",
    "cockpit-ray-token",
    "cockpit-nodes-viewer",
    "cockpit-queues-viewer",
)
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LATER = {("", "pods/exec", "create"), ("", "pods/portforward", "create")}
"""Required by Kubernetes from 1.35 on; 1.34 accepts `get` for a WebSocket."""
OF_QUEUES = (
    *("kueue.x-k8s.io", "visibility.kueue.x-k8s.io", "scheduling.volcano.sh"),
    "persistentvolumeclaims",
)
"""API groups and kinds that a healthy cluster without queues does not need; see
tests/backends/kuberay/test_queue_watch.py."""
ASKED_OF_ITSELF = ("authorization.k8s.io", "authentication.k8s.io")
"""SelfSubjectAccessReview and SelfSubjectReview: everyone may send them, without a role."""

WATCHED = {
    *(("ray.io", "rayclusters"), ("ray.io", "rayjobs")),
    *(("", "pods"), ("", "events"), ("", "nodes")),
}

Right = tuple[str, str, str]
"""API group, resource with its subresource, verb."""


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(MANIFEST.read_text()))


def rights(roles: tuple[str, ...] | None = None) -> set[Right]:
    return {
        (group, resource, verb)
        for role in documents()
        if roles is None or role["metadata"]["name"] in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.fixture(scope="module")
def granted(ray_on_kubernetes: RealCluster) -> Iterator[RealCluster]:
    """The unchanged manifest, bound to a viewer and an operator."""
    plane, namespace = ray_on_kubernetes.testbed.plane, ray_on_kubernetes.ref.namespace
    made: list[str] = []

    def make(path: str, body: dict[str, Any]) -> None:
        plane.ask("POST", path, body)
        made.append(f"{path}/{body['metadata']['name']}")

    for role in documents():
        name, kind = role["metadata"]["name"], role["kind"]
        local = f"{RBAC}/namespaces/{namespace}"
        make(f"{RBAC}/clusterroles" if kind == "ClusterRole" else f"{local}/roles", role)
        users = [VIEWER, OPERATOR] if name in VIEWERS_ROLES else [OPERATOR]
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": [{"kind": "User", "name": user} for user in users],
        }
        everywhere = "nodes" in name or "queues" in name
        make(f"{RBAC}/clusterrolebindings" if everywhere else f"{local}/rolebindings", binding)
    yield ray_on_kubernetes
    for path in reversed(made):
        plane.ask("DELETE", path)


@pytest.fixture
async def viewer(granted: RealCluster) -> AsyncIterator[KubeRayBackend]:
    backend = granted.backend(granted.testbed.plane.user_kubeconfig(VIEWER))
    yield backend
    await backend.aclose()


@pytest.fixture
async def operator(granted: RealCluster) -> AsyncIterator[KubeRayBackend]:
    backend = granted.backend(granted.testbed.plane.user_kubeconfig(OPERATOR))
    yield backend
    await backend.aclose()


def uid_of(granted: RealCluster, name: str, plural: str = "pods") -> str:
    api = "/apis/ray.io/v1" if plural.startswith("ray") else "/api/v1"
    path = f"{api}/namespaces/{granted.ref.namespace}/{plural}/{name}"
    return str(granted.testbed.plane.ask("GET", path)["metadata"]["uid"])


async def worker(backend: KubeRayBackend) -> str:
    async for event in backend.watch():
        if isinstance(event, PodsListed) and not event.more:
            return next(pod.name for pod in event.pods if pod.node_type == "worker" and pod.ready)
    raise AssertionError("the watch ended")


@pytest.mark.slow
@pytest.mark.ray
async def test_a_viewer_sees_everything_and_changes_nothing(
    granted: RealCluster, viewer: KubeRayBackend, tmp_path: Path
) -> None:
    seen: set[type] = set()
    async with asyncio.timeout(60):
        async for event in viewer.watch():
            seen.add(type(event))
            if isinstance(event, SourceHealth):
                assert event.ok, event.error
                watched = {
                    (g, r) for g, r, verb in used_rights(granted, (VIEWER,)) if verb == "watch"
                }
                if watched >= WATCHED:
                    break
    assert {PodsListed, KubernetesNodesListed, Notice} <= seen
    pod = await worker(viewer)
    assert [line async for line in viewer.logs(pod, follow=False, lines=1)]
    for kind, name in (("cluster", "demo"), ("group", "gpu"), ("pod", pod), ("node", "node-1")):
        assert name in await viewer.manifest(kind, name)
        assert name in await viewer.describe(kind, name)
    assert await viewer.quota_room() == ()
    async with Dashboard(viewer.dashboard) as dashboard:
        assert sum(node.alive for node in await dashboard.nodes()) == 2
        with pytest.raises(NotAllowedError):
            await submission.launch(dashboard, submission.script_spec(("true",), tmp_path))

    able = await viewer.capabilities()
    assert {verb for verb, capability in able.items() if capability.allowed} == {
        *("logs", "manifest", "describe")
    }
    assert all(able[verb].why_not.startswith("you may not ") for verb in ("scale", "cordon"))
    for change in (
        viewer.scale(ScaleRequest("gpu", 2)),
        viewer.delete_pod(pod, uid=uid_of(granted, pod), grace_s=0),
        viewer.exec(pod, ["true"]),
        viewer.suspend(True),
        viewer.cordon("node-1", True),
        viewer.create_rayjob(RayJobSpec("refused", "true")),
        viewer.evict_pod(pod, uid=uid_of(granted, pod), grace_s=0),
        viewer.isolate(pod, "refused", uid=uid_of(granted, pod)),
        viewer.hold("refused", 1),
    ):
        with pytest.raises(NotAllowedError):
            await change


@pytest.mark.slow
@pytest.mark.ray
async def test_an_operator_may_do_every_verb(
    granted: RealCluster, operator: KubeRayBackend, tmp_path: Path
) -> None:
    able = await operator.capabilities()
    assert all(capability.allowed for capability in able.values()), able
    await operator.scale(ScaleRequest("gpu", 1))
    await operator.suspend(False)
    await operator.cordon("node-1", True)
    await operator.cordon("node-1", False)
    pod = await worker(operator)
    assert (await operator.exec(pod, ["echo", "hello"])).stdout == "hello\n"

    (tmp_path / "hello.py").write_text("print('hello')\n")
    spec = submission.script_spec(("python", "hello.py"), tmp_path)
    async with Dashboard(operator.dashboard) as dashboard:
        job = await submission.launch(dashboard, spec)
        await submission.stop(dashboard, job.id)
        await _ended(dashboard, job.id)
        await submission.delete(dashboard, job.id)

    namespace = operator.ref.namespace
    head = next(
        item["metadata"]["name"]
        for item in granted.pods()
        if item["metadata"]["labels"]["ray.io/node-type"] == "head"
    )
    async with (
        PortForward(operator.client, namespace, head, 8265) as forward,
        httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=forward.socket_path)) as client,
    ):
        assert (await client.get("http://head:8265/api/gcs_healthz")).status_code == 200

    asked = RayJobSpec("rights", "python hello.py", package=b"PK\5\6" + bytes(18), own_cluster=True)
    name = await operator.create_rayjob(asked)
    uid = uid_of(granted, name, "rayjobs")
    await operator.stop_rayjob(name, uid=uid)
    await operator.delete_rayjob(name, uid=uid)
    name = await operator.create_rayjob(
        replace(asked, name="rights-here", own_cluster=False, package=b"")
    )
    await operator.delete_rayjob(name, uid=uid_of(granted, name, "rayjobs"))
    await operator.announce(Change("scale", "RayCluster", "demo", "1", "1"))
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{operator.ref.namespace}/leases"
    for lease in granted.testbed.plane.ask("GET", leases)["items"]:  # of a drill before
        granted.testbed.plane.ask("DELETE", f"{leases}/{lease['metadata']['name']}")
    assert await operator.holder() == ""
    await operator.hold("rights", 10)
    await operator.hold("rights", 10)
    assert await operator.holder() == "rights"
    with pytest.raises(CockpitError, match="Another drill"):
        await operator.hold("another", 10)
    await operator.release("rights")
    assert await operator.holder() == ""
    await operator.isolate(pod, "cockpit-rights", uid=uid_of(granted, pod))
    await operator.rejoin("cockpit-rights")
    await operator.rejoin("cockpit-rights")
    await operator.evict_pod(pod, uid=uid_of(granted, pod), grace_s=0)
    granted.wait_ready(1)
    pod = await worker(operator)
    await operator.delete_pod(pod, uid=uid_of(granted, pod), grace_s=0)
    granted.wait_ready(1)


@pytest.mark.slow
@pytest.mark.ray
async def test_every_right_of_the_manifest_has_been_used(
    granted: RealCluster, viewer: KubeRayBackend
) -> None:
    """From the API server's audit log of the two tests above, and what a verb requests besides."""
    await viewer.client.get(f"/api/v1/namespaces/{granted.ref.namespace}")
    used = used_rights(granted, (VIEWER, OPERATOR))
    of_queues = {each for each in rights() if each[0] in OF_QUEUES or each[1] in OF_QUEUES}
    assert rights() - used - LATER - of_queues == set(), "rights that no verb needs"
    assert used_rights(granted, (VIEWER,)) <= rights(VIEWERS_ROLES)


async def _ended(dashboard: Dashboard, job_id: str) -> None:
    for _ in range(300):
        if (await dashboard.job(job_id)).status.is_over:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"job {job_id} does not end")


def used_rights(cluster: RealCluster, users: tuple[str, ...]) -> set[Right]:
    """The requests of the users that were not refused."""
    used: set[Right] = set()
    for line in cluster.testbed.plane.audit_log.read_text().splitlines():
        entry = json.loads(line)
        about = entry.get("objectRef")
        if entry["user"].get("username") not in users or not about:
            continue
        group = about.get("apiGroup", "")
        refused = entry.get("responseStatus", {}).get("code") == 403
        if not refused and group not in ASKED_OF_ITSELF:
            sub = about.get("subresource")
            resource = f"{about['resource']}/{sub}" if sub else about["resource"]
            used.add((group, resource, entry["verb"]))
    return used
