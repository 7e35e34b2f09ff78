"""The verbs on KubeRay's own operator, with pods that run the real Ray, as a user runs them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.cluster.fixtures import need_kuberay
from tests.cluster.host_image import USER
from tests.cluster.raycluster import Group, ray_cluster
from tests.cluster.testbed import Testbed
from tests.manifests.kustomize import FOLDER, build
from tests.manifests.test_api_server import apply
from tests.manifests.test_road import Cockpit, until

IMAGE = "registry.example.com/cockpit-train:0.1.0"
SHARED = "/shared"
"""Where the pods have the volume."""
STORAGE = f"storage_path={SHARED}/checkpoints"
LIGHT = ("--set", "model=mlp", "--set", "width=8", "--set", "epochs=3")
SHORT = "--workers 1 --model mlp --width 8 --epochs 2"
"""In place of `--workers 2` of the manifests."""
IDLE_S = 15
"""After which the autoscaler removes a worker, in place of the 300 s of the overlay."""
SOON_S, JOB_S = 180.0, 600.0

# The same with the fake operator: tests/cluster/test_operator_jobs.py (retries) and
# test_operator_replay.py (the autoscaler, several hosts). README's commands: test_road.py.
pytestmark = [pytest.mark.nightly, pytest.mark.ray, pytest.mark.timeout(2400)]

Object = dict[str, Any]


@pytest.fixture(scope="module")
def testbed(programs: None) -> Iterator[Testbed]:
    need_kuberay()
    made = Testbed.up(real=True, operator=True, images=(IMAGE,))
    try:
        yield made
        ended = made.plane.space.ended()
    finally:
        made.down()
    assert not ended


@dataclass(frozen=True)
class Team:
    """A user of the RayCluster `demo` of a namespace."""

    testbed: Testbed
    cockpit: Cockpit
    namespace: str

    @property
    def where(self) -> tuple[str, ...]:
        return ("-n", self.namespace, "--cluster", "demo")

    @property
    def shared(self) -> Path:
        """The folder of the host that the pods have at SHARED."""
        return self.testbed.plane.space.folder / self.namespace

    def path(self, kind: str, name: str = "") -> str:
        return f"/apis/ray.io/v1/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def patch(self, name: str, body: Object) -> None:
        content = "application/merge-patch+json"
        self.testbed.plane.ask("PATCH", self.path("rayclusters", name), body, content=content)

    def run(self, *words: str) -> str:
        return self.cockpit.run(*words, *self.where)

    def read(self, *words: str) -> Any:
        return self.cockpit.read(*words, *self.where)

    def workers(self) -> list[Object]:
        """Those that are not being deleted."""
        return [pod for pod in self.read("pods") if pod["node_type"] == "worker"]

    def until(self, found: Callable[[], Any], timeout_s: float) -> Any:
        return until(found, timeout_s, lambda: (self.read("pods"), self.read("events"),
                     self.testbed.plane.space.said("operator")))  # fmt: skip

    def ended_job(self, matches: Callable[[Mapping[str, Any]], bool]) -> Any:
        """The first job that has ended, of those that match."""
        jobs = self.cockpit.poll("jobs", *self.where) or ()
        return next((job for job in jobs if matches(job) and job["ended_s"]), None)


@contextmanager
def team(testbed: Testbed, folder: Path, namespace: str) -> Iterator[Team]:
    """With a folder for the volume of a cluster."""
    folders = {"XDG_CONFIG_HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    environment = {**os.environ, **folders, "KUBECONFIG": str(testbed.kubeconfig)}
    made = Team(testbed, Cockpit(environment), namespace)
    made.shared.mkdir()
    os.chown(made.shared, USER, USER)
    yield made


@contextmanager
def up(team: Team, *flags: str) -> Iterator[None]:
    """The cluster of the manifests, which `cockpit down` removes."""
    volume = ("--host-path", str(team.shared), "--small", "--yes")
    team.run("up", "--on", "kubernetes", "--image", IMAGE, *volume, *flags)
    try:
        yield
    finally:
        team.run("down", "--on", "kubernetes", "--yes")


def test_autoscaler_adds_a_worker_for_a_run_and_removes_it_when_it_is_idle(
    testbed: Testbed, tmp_path: Path
) -> None:
    with (
        team(testbed, tmp_path, "autoscaled") as user,
        up(user, "--overlay", "autoscaling"),
    ):
        user.patch("demo", {"spec": {"autoscalerOptions": {"idleTimeoutSeconds": IDLE_S}}})
        assert user.workers() == []
        launched = user.run("launch", "checkpointed", "--workers", "1", "--set", STORAGE,
                            *LIGHT, "--yes").split()[-1]  # fmt: skip
        job = user.until(lambda: user.ended_job(lambda job: job["name"] == launched), JOB_S)
        assert job["status"] == "SUCCEEDED", job
        assert [group["autoscaled"] for group in user.read("groups")] == [True]
        user.until(lambda: user.workers() == [], SOON_S)

        user.run("scale", "workers", "1", "--min", "1", "--wait", "--yes")
        [kept] = user.workers()
        assert kept["ready"]


FLAKY = f"""
import pathlib, sys
mark = pathlib.Path("{SHARED}/tried")
first = not mark.exists()
mark.touch()
sys.exit(first)
"""


def test_rayjob_that_fails_runs_again_on_a_new_cluster(testbed: Testbed, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "flaky.py").write_text(FLAKY)
    with team(testbed, tmp_path, "retried") as user, up(user, "--overlay", "cpu", "--size", "1"):
        flags = ("--via", "rayjob", "--own-cluster", "--replicas", "workers=0", "--retries", "1",
                 "--ttl", "1", "--working-dir", str(code), "-f", "--yes")  # fmt: skip
        printed = user.cockpit.run("launch", *flags, *user.where, "--", "python", "flaky.py")
        [job] = [each for each in user.read("jobs") if each["rayjob"]]
        assert (job["status"], job["deployment"]) == ("SUCCEEDED", "Complete"), printed
        status = testbed.plane.ask("GET", user.path("rayjobs", job["rayjob"]))["status"]
        assert (status["failed"], status["succeeded"]) == (1, 1)
        clusters = user.path("rayclusters")
        user.until(
            lambda: (
                [each["metadata"]["name"] for each in testbed.plane.ask("GET", clusters)["items"]]
                == ["demo"]
            ),
            SOON_S,
        )


def test_hosts_of_a_replica_are_scaled_killed_and_removed_together(
    testbed: Testbed, tmp_path: Path
) -> None:
    with team(testbed, tmp_path, "hosts") as user:
        namespace = testbed.namespace(user.namespace)
        body = ray_cluster(groups=(Group(hosts=2),), namespace=namespace)
        testbed.plane.ask("POST", user.path("rayclusters"), body)
        try:
            user.until(lambda: health(user) == "ready", JOB_S)
            [group] = user.read("groups")
            assert (group["hosts"], group["desired"], group["ready"]) == (2, 2, 2)
            first = replicas(user)
            assert [len(names) for names in first.values()] == [2]

            user.run("scale", "gpu", "2", "--wait", "--yes")
            both = replicas(user)
            assert [len(names) for names in both.values()] == [2, 2]

            [gone] = first.values()
            user.run("scale", "gpu", "1", "--remove", gone[0], "--wait", "--yes")
            [left] = replicas(user).values()
            assert not set(gone) & set(left)

            user.run("kill", left[0], "--yes")
            user.until(lambda: is_whole(user, set(left)), SOON_S)
        finally:
            testbed.plane.ask("DELETE", user.path("rayclusters", "demo"))
            testbed.plane.ask("DELETE", f"/api/v1/namespaces/{namespace}")


def health(user: Team) -> str:
    return str(user.read("status")["cluster"]["health"])


def replicas(user: Team) -> dict[str, list[str]]:
    """The names of the pods of each replica."""
    found: dict[str, list[str]] = {}
    for pod in user.workers():
        found.setdefault(pod["replica"], []).append(pod["name"])
    return found


def is_whole(user: Team, killed: set[str]) -> bool:
    """Whether one new replica with two ready pods has taken the place of the killed one."""
    pods = user.workers()
    new = not killed & {pod["name"] for pod in pods}
    return new and len(pods) == 2 and all(pod["ready"] for pod in pods)


def test_raycronjob_of_the_manifests_trains_when_it_is_due(
    testbed: Testbed, tmp_path: Path
) -> None:
    (cron,) = build(FOLDER / "cronjob")
    with team(testbed, tmp_path, "nightly") as user, up(user, "--overlay", "cpu"):
        made = in_namespace(cron, user)
        made["spec"]["schedule"] = "* * * * *"
        entrypoint = made["spec"]["jobTemplate"]["entrypoint"]
        made["spec"]["jobTemplate"]["entrypoint"] = entrypoint.replace("--workers 2", SHORT)
        testbed.plane.ask("POST", user.path("raycronjobs"), made)
        user.until(lambda: user.cockpit.poll("jobs", *user.where), SOON_S)
        testbed.plane.ask(
            "PATCH",
            user.path("raycronjobs", cron["metadata"]["name"]),
            {"spec": {"suspend": True}},
            content="application/merge-patch+json",
        )
        job = user.until(lambda: user.ended_job(lambda job: bool(job["rayjob"])), JOB_S)
        assert job["status"] == "SUCCEEDED", job
        assert list(user.shared.glob("checkpoints/nightly-*/*checkpoint*"))


def test_rayservice_of_the_manifests_serves_what_their_rayjob_has_trained(
    testbed: Testbed, tmp_path: Path
) -> None:
    (job,) = build(FOLDER / "jobs")
    with team(testbed, tmp_path, "served") as user, up(user, "--overlay", "cpu", "--size", "1"):
        made = in_namespace(job, user)
        made["spec"]["entrypoint"] = made["spec"]["entrypoint"].replace("--workers 2", SHORT)
        testbed.plane.ask("POST", user.path("rayjobs"), made)
        ended = user.until(lambda: user.ended_job(lambda job: bool(job["rayjob"])), JOB_S)
        assert ended["status"] == "SUCCEEDED", ended

        service = user.path("rayservices", "model")
        for each in build(FOLDER / "service"):
            apply(testbed, in_namespace(each, user))
        try:
            path = f"/api/v1/namespaces/{user.namespace}/services/model-serve-svc:8000/proxy/info"
            info = user.until(lambda: answer(testbed, path), JOB_S)
            assert info["model"] == "mlp"
            clusters = {
                each["name"]: each for each in user.cockpit.read("clusters", "-n", user.namespace)
            }
            assert len(clusters) == 2
            assert {each["health"] for each in clusters.values()} == {"ready"}
        finally:
            testbed.plane.ask("DELETE", service)


def in_namespace(each: Object, user: Team) -> Object:
    """The object in the namespace of the user, with the image of the node."""
    plain = f'"{IMAGE.rpartition("/")[2]}"'
    moved: Object = json.loads(json.dumps(each).replace(plain, f'"{IMAGE}"'))
    moved["metadata"]["namespace"] = user.namespace
    return moved


def answer(testbed: Testbed, path: str) -> Any:
    """None while nothing answers."""
    try:
        return testbed.plane.ask("GET", path)
    except HTTPError as error:
        if error.code not in (404, 502, 503, 504):
            raise
    return None
