"""The contract of all backends, on a real Kubernetes: real pods, real Ray, an operator."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import read
from cockpit.backends.kuberay.backend import KubeRayBackend
from cockpit.backends.kuberay.resources.clusters import FleetSource
from cockpit.backends.protocol import RayJobSpec
from cockpit.model.cluster import ClusterHealth, ClusterRef
from cockpit.model.error import ReplacedError
from cockpit.model.event import ClusterSeen, ClustersListed, JobsListed, PodsListed
from cockpit.model.run import Job, JobStatus
from cockpit.sources.ray.dashboard import Dashboard
from tests.backends.contract import BackendContract, seen, workers
from tests.cluster.fixtures import RealCluster
from tests.cluster.raycluster import ray_pod_template
from tests.cluster.testbed import Testbed

NAMESPACE = "ml"


@asynccontextmanager
async def backend_of(testbed: Testbed) -> AsyncIterator[KubeRayBackend]:
    context = read([testbed.kubeconfig]).context()
    made = KubeRayBackend(
        Credentials(context), ClusterRef("kuberay", "demo", NAMESPACE, context.name)
    )
    try:
        yield made
    finally:
        await made.aclose()


@pytest.fixture(scope="module")
def running(ray_on_kubernetes: RealCluster) -> Testbed:
    """With a cluster `demo` of a head and a worker, both ready."""
    ray_on_kubernetes.wait_ready(1)
    return ray_on_kubernetes.testbed


@pytest.fixture
async def backend(running: Testbed) -> AsyncIterator[KubeRayBackend]:
    async with backend_of(running) as made:
        yield made


class TestOnKubernetes(BackendContract):
    async def test_the_route_goes_by_the_service_proxy(self, backend: KubeRayBackend) -> None:
        route = await backend.dashboard()
        assert route.via == "service proxy"
        async with Dashboard(backend.dashboard) as dashboard:
            assert (await dashboard.version()).ray

    async def test_without_the_right_to_the_proxy_it_goes_by_a_port_forward(
        self, backend: KubeRayBackend, running: Testbed
    ) -> None:
        kubeconfig = _user(running, "cockpit-forwarder", _FORWARD)
        context = read([kubeconfig]).context()
        other = KubeRayBackend(Credentials(context), backend.ref)
        try:
            route = await other.dashboard()
            assert route.via == "port-forward"
            transport = httpx.AsyncHTTPTransport(uds=route.socket_path)
            async with httpx.AsyncClient(transport=transport, base_url=route.base_url) as client:
                answer = await client.get("/api/version", headers=route.headers)
                assert answer.json()["ray_version"]
        finally:
            await other.aclose()

    async def test_a_crash_loop_reports_its_last_output(
        self, backend: KubeRayBackend, running: Testbed
    ) -> None:
        template = ray_pod_template("ray", memory="256Mi")
        template["spec"]["containers"][0]["command"] = ["sh", "-c", "echo no head here; exit 3"]
        template["metadata"] = {
            "name": "demo-odd-worker-aaaaa",
            "labels": {
                "ray.io/cluster": "crashing",
                "ray.io/group": "odd",
                "ray.io/node-type": "worker",
            },
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        running.plane.ask("POST", path, template)
        ref = replace(backend.ref, name="crashing")
        crashing = KubeRayBackend(backend.client.credentials, ref)
        try:
            listed = await seen(
                crashing,
                PodsListed,
                lambda event: any("no head here" in pod.reason for pod in event.pods),
            )
        finally:
            await crashing.aclose()
            await backend.client.delete(f"{path}/demo-odd-worker-aaaaa")
        assert "exit code 3: no head here" in listed.pods[0].reason

    async def test_a_shell_in_a_pod_takes_input(self, backend: KubeRayBackend) -> None:
        (pod,) = await workers(backend)
        terminal = await backend.attach(pod.name, ["sh"], tty=True)
        await terminal.write(b"echo is $((40 + 2)); exit 7\n")
        text = b"".join([chunk async for chunk in terminal.output()])
        assert b"is 42" in text
        assert await terminal.wait() == 7
        await terminal.aclose()

    async def test_a_rayjob_on_this_cluster_runs_to_its_end(self, backend: KubeRayBackend) -> None:
        spec = RayJobSpec("count", "python -c 'print(6 * 7)'", runtime_env={"env_vars": {"A": "1"}})
        assert await backend.create_rayjob(spec) == "count"
        job = await _job(backend, "count", lambda job: job.status.is_over)
        with pytest.raises(ReplacedError, match="RayJob count was replaced"):
            await backend.delete_rayjob("count", uid="of-another")
        assert (job.status, job.cluster, job.deployment) == (
            JobStatus.SUCCEEDED,
            "demo",
            "Complete",
        )
        await backend.delete_rayjob("count", uid=job.rayjob_uid)
        await seen(backend, JobsListed, lambda event: not event.jobs)

    async def test_a_rayjob_that_runs_is_stopped(self, backend: KubeRayBackend) -> None:
        await backend.create_rayjob(RayJobSpec("long", "sleep 600"))
        job = await _job(backend, "long", lambda job: job.status is JobStatus.RUNNING)
        await backend.stop_rayjob("long", uid=job.rayjob_uid)
        job = await _job(backend, "long", lambda job: job.status.is_over)
        assert (job.status, job.deployment) == (JobStatus.STOPPED, "Complete")
        await backend.stop_rayjob("long", uid=job.rayjob_uid)
        await backend.delete_rayjob("long", uid=job.rayjob_uid)

    @pytest.mark.slow
    async def test_a_rayjob_with_a_cluster_of_its_own_brings_its_code_and_takes_all_away(
        self, backend: KubeRayBackend
    ) -> None:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as file:
            file.writestr("code/fit/__init__.py", "")
            file.writestr("code/fit/__main__.py", "import os; print(os.environ['WORD']); exit(0)")
        spec = RayJobSpec(
            "own",
            "python -m fit",
            runtime_env={"env_vars": {"WORD": "learnt"}},
            package=packed.getvalue(),
            own_cluster=True,
            replicas={"gpu": 1},
            deadline_s=1200,
        )
        await backend.create_rayjob(spec)
        job = await _job(backend, "own", lambda job: job.status.is_over)
        assert job.status is JobStatus.SUCCEEDED, job.message
        assert job.cluster not in ("", "demo")
        fleet = FleetSource("here", lambda: backend.client.credentials)
        async with asyncio.timeout(180):
            async for event in fleet.events():
                if isinstance(event, ClustersListed) and len(event.clusters) == 1:
                    break
        await backend.delete_rayjob("own", uid=job.rayjob_uid)

    @pytest.mark.slow
    async def test_suspending_takes_all_pods_and_resuming_makes_them(
        self, backend: KubeRayBackend
    ) -> None:
        await backend.suspend(True)
        await seen(backend, ClusterSeen, lambda it: it.health is ClusterHealth.SUSPENDED)
        await seen(backend, PodsListed, lambda event: not event.pods)
        await backend.suspend(False)
        await seen(backend, ClusterSeen, lambda it: it.health is ClusterHealth.STARTING)
        await seen(backend, ClusterSeen, lambda it: it.health is ClusterHealth.READY)


async def _job(backend: KubeRayBackend, name: str, until: Callable[[Job], bool]) -> Job:
    def there(event: JobsListed) -> bool:
        return any(job.rayjob == name and until(job) for job in event.jobs)

    listed = await seen(backend, JobsListed, there)
    return next(job for job in listed.jobs if job.rayjob == name)


_FORWARD = [
    {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]},
]


def _user(testbed: Testbed, name: str, rules: list[dict[str, list[str]]]) -> Path:
    api = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
    testbed.plane.ask("POST", f"{api}/roles", {"metadata": {"name": name}, "rules": rules})
    rbac = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
        "subjects": [{"kind": "User", "name": name, "apiGroup": rbac}],
    }
    testbed.plane.ask("POST", f"{api}/rolebindings", binding)
    return testbed.plane.user_kubeconfig(name)
