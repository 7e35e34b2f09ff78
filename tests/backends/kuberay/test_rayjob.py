"""RayJobs: the object that is made, on a real API server without an operator."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from cockpit.backends.kuberay.api.client import KubeClient, KubeError
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import KubeContext
from cockpit.backends.kuberay.resources.rayjob import PACKAGE_LIMIT_BYTES, create, resource
from cockpit.backends.protocol import RayJobSpec
from cockpit.model.cluster import ClusterRef
from cockpit.model.driver import DriverResources
from cockpit.model.error import NotAllowedError, ReplacedError, UsageError
from cockpit.model.event import JobsListed
from cockpit.model.run import JobStatus
from tests.backends.contract import seen
from tests.backends.kuberay.by_hand import Place
from tests.cluster.raycluster import Group, ray_cluster

REF = ClusterRef("kuberay", "demo", "ml", "here")
SPEC = RayJobSpec(
    "fit-1", "python -m fit", runtime_env={"env_vars": {"EPOCHS": "3"}}, metadata={"owner": "jane"}
)
OWN = replace(SPEC, own_cluster=True, package=b"zip", replicas={"gpu": 4})


def pattern(**spec: Any) -> dict[str, Any]:
    made = ray_cluster("demo", (Group(replicas=2, min=1, max=3), Group("cpu")), namespace="ml")
    made["spec"] |= {"suspend": True, **spec}
    made["spec"]["workerGroupSpecs"][0]["scaleStrategy"] = {"workersToDelete": ["demo-x"]}
    return made


def test_on_the_present_cluster_it_names_it_and_its_package() -> None:
    spec = replace(SPEC, working_dir="gcs://_ray_pkg_1.zip", deadline_s=60, backoff_limit=2)
    made = resource(REF, pattern(), spec)["spec"]
    assert made["clusterSelector"] == {"ray.io/cluster": "demo"}
    assert made["submissionMode"] == "HTTPMode"
    assert (made["activeDeadlineSeconds"], made["backoffLimit"]) == (60, 2)
    assert yaml.safe_load(made["runtimeEnvYAML"]) == {
        "env_vars": {"EPOCHS": "3"},
        "working_dir": "gcs://_ray_pkg_1.zip",
    }
    # KubeRay refuses a time to live without this flag, and never deletes a selected cluster.
    assert "shutdownAfterJobFinishes" not in made
    kept = resource(REF, pattern(), replace(spec, ttl_s=30))["spec"]
    assert (kept["shutdownAfterJobFinishes"], kept["ttlSecondsAfterFinished"]) == (True, 30)


def test_a_cluster_of_its_own_follows_the_pattern_and_carries_the_package() -> None:
    raw = pattern()
    made = resource(REF, raw, OWN)["spec"]
    cluster = made["rayClusterSpec"]
    gpu, cpu = cluster["workerGroupSpecs"]
    assert (gpu["replicas"], gpu["minReplicas"], gpu["maxReplicas"]) == (4, 1, 4)
    assert cpu["replicas"] == 1
    assert "suspend" not in cluster
    assert "scaleStrategy" not in gpu
    for group in (cluster["headGroupSpec"], gpu, cpu):
        pod = group["template"]["spec"]
        assert pod["volumes"][-1]["configMap"] == {"name": "fit-1-package"}
        assert pod["containers"][0]["volumeMounts"][-1]["mountPath"] == "/cockpit"
    env = yaml.safe_load(made["runtimeEnvYAML"])
    assert env["working_dir"] == "file:///cockpit/package.zip"
    assert (made["shutdownAfterJobFinishes"], made["ttlSecondsAfterFinished"]) == (True, 0)
    assert raw == pattern()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (replace(SPEC, name="Fit_1"), "Fit_1"),
        (replace(SPEC, name="x" * 48), "name of a RayJob"),
        (replace(SPEC, name=""), "name of a RayJob"),
        (replace(OWN, package=b"x" * (PACKAGE_LIMIT_BYTES + 1)), "1 MiB"),
        (replace(OWN, replicas={"tpu": 1}), "tpu"),
        (replace(OWN, replicas={"gpu": -1}), "below 0"),
        (replace(SPEC, queue="team-a"), "--queue is for a cluster of the job's own"),
        (replace(OWN, queue="Team A"), "names no queue"),
        (replace(OWN, queue="slurm:team-a"), "names no queue"),
    ],
)
def test_invalid_rayjob_is_refused_before_it_is_sent(wrong: RayJobSpec, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        resource(REF, pattern(), wrong)


async def test_the_package_is_owned_by_its_rayjob(place: Place) -> None:
    place.cluster()
    async with place.backend() as backend:
        assert await backend.create_rayjob(OWN) == "fit-1"
        listed = await seen(backend, JobsListed, lambda event: bool(event.jobs))
        with pytest.raises(UsageError, match="already"):
            await backend.create_rayjob(OWN)
    assert [(job.rayjob, job.deployment) for job in listed.jobs] == [("fit-1", "New")]
    made = place.ask("GET", place.path("rayjobs", "fit-1"))
    package = place.ask("GET", place.path("configmaps", "fit-1-package"))
    assert base64.b64decode(package["binaryData"]["package.zip"]) == b"zip"
    (owner,) = package["metadata"]["ownerReferences"]
    assert owner["uid"] == made["metadata"]["uid"]
    async with place.backend() as backend:
        with pytest.raises(ReplacedError, match="RayJob fit-1 was replaced"):
            await backend.delete_rayjob("fit-1", uid="of-another")
        await backend.delete_rayjob("fit-1", uid=made["metadata"]["uid"])
    # The garbage collector discovers new kinds every half minute, and must know this one.
    package_path = place.path("configmaps", "fit-1-package")
    place.wait(lambda: not place.has(package_path), "package gone", within_s=75)


async def test_a_package_that_may_not_be_made_leaves_no_rayjob_behind(place: Place) -> None:
    place.cluster()
    kubeconfig = place.user(
        "cockpit-no-configmaps",
        [
            {
                "apiGroups": ["ray.io"],
                "resources": ["rayclusters", "rayjobs"],
                "verbs": ["get", "create", "delete"],
            }
        ],
    )
    async with place.backend(kubeconfig=kubeconfig) as backend:
        with pytest.raises(NotAllowedError, match="configmaps"):
            await backend.create_rayjob(OWN)
    assert place.ask("GET", place.path("rayjobs"))["items"] == []


class SlowApi(KubeClient):
    """The upload of the package does not end, or is refused; so is the deletion of the RayJob."""

    def __init__(self, refusal: KubeError | None = None) -> None:
        super().__init__(Credentials(KubeContext("here", "ml", "http://127.0.0.1:9", "u", {}, {})))
        self.refusal = refusal
        self.uploading = asyncio.Event()
        self.deleted: list[tuple[str, str]] = []

    async def create(self, path: str, body: Any) -> Any:
        if path.endswith("/rayjobs"):
            return {"metadata": {"uid": "u"}}
        self.uploading.set()
        if self.refusal is None:
            await asyncio.Event().wait()
        raise KubeError("the package is refused", status=422)

    async def delete(self, path: str, body: Any = None) -> Any:
        self.deleted.append((path.rpartition("/")[2], body["preconditions"]["uid"]))
        if self.refusal is not None:
            raise self.refusal


async def test_interrupted_upload_of_the_package_leaves_no_rayjob_behind() -> None:
    api = SlowApi()
    task = asyncio.create_task(create(api, REF, pattern(), OWN))
    await api.uploading.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert api.deleted == [("fit-1", "u")]


async def test_error_of_the_upload_is_raised_if_the_rayjob_cannot_be_deleted() -> None:
    api = SlowApi(KubeError("not found", status=404))
    with pytest.raises(KubeError, match="the package is refused"):
        await create(api, REF, pattern(), OWN)
    assert api.deleted == [("fit-1", "u")]


@pytest.mark.parametrize(
    ("spec", "status", "change"),
    [
        (OWN, {"jobDeploymentStatus": "Initializing"}, {"suspend": True}),
        (SPEC, {"jobDeploymentStatus": "Initializing"}, {"activeDeadlineSeconds": 1}),
        (SPEC, {}, {"activeDeadlineSeconds": 1}),
        # Its cluster is deleted or does not respond: the remaining objects are deleted.
        (
            OWN,
            {"jobDeploymentStatus": "Running", "jobId": "j", "rayClusterName": "gone"},
            {"suspend": True},
        ),
        (SPEC, {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, {}),
        (OWN, {"jobDeploymentStatus": "Failed"}, {}),
    ],
)
async def test_each_state_is_stopped_in_its_way(
    place: Place, spec: RayJobSpec, status: dict[str, Any], change: dict[str, Any]
) -> None:
    place.cluster()
    async with place.backend() as backend:
        await backend.create_rayjob(spec)
        if status:
            place.merge(f"{place.path('rayjobs', 'fit-1')}/status", {"status": status})
        uid = place.ask("GET", place.path("rayjobs", "fit-1"))["metadata"]["uid"]
        with pytest.raises(ReplacedError, match="RayJob fit-1 was replaced"):
            await backend.stop_rayjob("fit-1", uid="of-another")
        await backend.stop_rayjob("fit-1", uid=uid)
    found = place.ask("GET", place.path("rayjobs", "fit-1"))["spec"]
    reported = {key: found[key] for key in ("suspend", "activeDeadlineSeconds") if key in found}
    assert reported == change


@pytest.mark.parametrize(
    ("queue", "labels"),
    [
        ("team-a", {"kueue.x-k8s.io/queue-name": "team-a"}),
        ("kueue:team-a", {"kueue.x-k8s.io/queue-name": "team-a"}),
        (
            "volcano:team-a",
            {"volcano.sh/queue-name": "team-a", "ray.io/scheduler-name": "volcano"},
        ),
    ],
)
def test_queue_is_a_label_of_the_rayjob(queue: str, labels: dict[str, str]) -> None:
    made = resource(REF, pattern(), replace(OWN, queue=queue))["metadata"]["labels"]
    assert labels.items() <= made.items()
    plain = resource(REF, pattern(), OWN)["metadata"]["labels"]
    assert made.keys() - plain.keys() == labels.keys()


async def test_job_in_a_queue_is_pending_and_ends_by_its_deadline(place: Place) -> None:
    place.cluster()
    path = place.path("rayjobs", "fit-1")
    async with place.backend() as backend:
        await backend.create_rayjob(replace(OWN, queue="team-a"))
        uid = place.ask("GET", path)["metadata"]["uid"]
        await backend.stop_rayjob("fit-1", uid=uid)
        # Kueue sets it again while the workload is admitted, so stop does not.
        assert "suspend" not in place.ask("GET", path)["spec"]
        place.merge(path, {"spec": {"suspend": True}})
        place.merge(f"{path}/status", {"status": {"jobDeploymentStatus": "Suspended"}})
        with pytest.raises(UsageError, match="waits in queue team-a"):
            await backend.stop_rayjob("fit-1", uid=uid)
        listed = await seen(
            backend, JobsListed, lambda event: event.jobs[0].deployment == "Suspended"
        )
    assert (listed.jobs[0].status, listed.jobs[0].queue) == (JobStatus.PENDING, "team-a")


def test_driver_resources_are_in_the_rayjob() -> None:
    driver = DriverResources(cpus=1, gpus=0.5, custom={"slot": 2})
    made = resource(REF, pattern(), replace(SPEC, driver=driver))["spec"]
    assert (made["entrypointNumCpus"], made["entrypointNumGpus"]) == (1, 0.5)
    assert json.loads(made["entrypointResources"]) == {"slot": 2}
    with pytest.raises(UsageError, match="--driver-memory"):
        resource(REF, pattern(), replace(SPEC, driver=DriverResources(memory_bytes=1)))


def test_an_image_replaces_that_of_rays_containers_alone() -> None:
    raw = pattern()
    for group in (raw["spec"]["headGroupSpec"], *raw["spec"]["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        pod["initContainers"] = [{"name": "data", "image": "busybox:1"}]
        pod["containers"].append({"name": "sidecar", "image": "fluent-bit:3"})
    cluster = resource(REF, raw, replace(OWN, image="registry/team/train:7"))["spec"]
    for group in (
        cluster["rayClusterSpec"]["headGroupSpec"],
        *cluster["rayClusterSpec"]["workerGroupSpecs"],
    ):
        pod = group["template"]["spec"]
        images = [each["image"] for each in (*pod["initContainers"], *pod["containers"])]
        assert images == ["busybox:1", "registry/team/train:7", "fluent-bit:3"]
    for wrong in (replace(OWN, image="a b"), replace(SPEC, image="train:7")):
        with pytest.raises(UsageError, match="cannot be used"):
            resource(REF, raw, wrong)
