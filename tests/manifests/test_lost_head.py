"""A run that the component `resubmit` has launched, after the container of its head was killed.

With the tables of the GCS in memory, and in the Redis server of the component `redis`: then the run
is submitted again if its driver was on the head, and continues if it was in the pod of the
component `driver`.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

import pytest
import yaml

from cockpit.cli.main import main
from cockpit.model.cluster import ClusterRef
from cockpit.session import builder
from cockpit.session.session import Session
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run
from cockpit.store.store import Store
from tests.cluster.fixtures import RealCluster
from tests.cluster.host_image import USER
from tests.cluster.node import ctr
from tests.cluster.testbed import Testbed
from tests.local_cluster import LIGHT_FLAGS
from tests.manifests.kustomize import FOLDER, IMAGE, name_of, one, with_component
from tests.manifests.test_api_server import apply
from tests.manifests.test_image import VERSION

# tests/drills/test_processes_on_local.py loses a head of a local cluster,
# tests/backends/kuberay/test_dashboard.py has the permissions of the component.
pytestmark = [pytest.mark.nightly, pytest.mark.ray, pytest.mark.timeout(3600)]

NAMESPACE, RUN = "ml", "checkpointed"
WORKERS = 2
"""One is the spare of the overlay: the nodes are not lost, so both have a rank."""
REDIS_USER = 999
"""Of the component."""
START_S = 900.0
SAVED_EVERY = 20
"""Steps between two checkpoints."""
LONGEST_PAUSE_S = 15.0
"""Between two checkpoints while the head is replaced."""


@pytest.fixture
def cluster(programs: None) -> Iterator[RealCluster]:
    """The RayCluster `demo` of `cockpit up`, and the Job of the component."""
    images = (IMAGE, f"cockpit:{VERSION}", "redis:7.2")
    testbed = Testbed.up(real=True, operator=True, images=images)
    try:
        shared = testbed.plane.space.folder / "shared"
        shared.mkdir()
        os.chown(shared, USER, USER)
        where = ("--kubeconfig", str(testbed.kubeconfig), "-n", NAMESPACE, "--cluster", "demo")
        up = ("up", "--on", "kubernetes", "--overlay", "recovery", "--size", "1", "--small")
        image = ("--image", IMAGE, "--host-path", str(shared), "--yes")
        assert main((*up, *image, *where)) == 0
        ref = ClusterRef("kuberay", "demo", NAMESPACE, testbed.kubeconfig.stem)
        yield RealCluster(testbed, ref, testbed.kubeconfig)
    finally:
        ended = testbed.plane.space.ended()
        testbed.down()
    assert not ended


def use_redis(cluster: RealCluster, folder: Path, *, driver: bool = False) -> None:
    """Add the component to the cluster, which exists: its pods are created again.

    With `driver`, the component of that name too.
    """
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    plane, core = cluster.testbed.plane, f"/api/v1/namespaces/{NAMESPACE}"
    files = cluster.testbed.plane.space.folder / "redis"
    files.mkdir()
    os.chown(files, REDIS_USER, REDIS_USER)
    built = with_component("redis", folder=folder)
    claim = one(built, "PersistentVolumeClaim", "redis")
    volume = {
        "capacity": claim["spec"]["resources"]["requests"],
        "accessModes": claim["spec"]["accessModes"],
        "hostPath": {"path": str(files), "type": "Directory"},
        "claimRef": {"namespace": NAMESPACE, "name": "redis"},
    }
    plane.ask("POST", "/api/v1/persistentvolumes", {"metadata": {"name": "redis"}, "spec": volume})
    secret = {"metadata": {"name": "redis"}, "stringData": {"password": secrets.token_hex(16)}}
    plane.ask("POST", f"{core}/secrets", secret)
    claim["spec"]["storageClassName"] = ""
    for each in built:
        if name_of(each) in ("redis", "ray-to-redis"):
            apply(cluster.testbed, each)
    given = one(built, "RayCluster")["spec"]["gcsFaultToleranceOptions"]
    patch = [{"op": "add", "path": "/spec/gcsFaultToleranceOptions", "value": given}]
    if driver:
        patch += yaml.safe_load((FOLDER / "components" / "driver" / "group.yaml").read_text())
    place = f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayclusters/demo"
    plane.ask("PATCH", place, patch, content="application/json-patch+json")
    before = cluster.pods()
    for pod in before:
        delete(cluster, pod)
    cluster.wait_ready(WORKERS + driver, START_S)
    old, new = ({pod["metadata"]["uid"] for pod in pods} for pods in (before, cluster.pods()))
    assert not old & new


class Pauses:
    """The longest time between two checkpoints of a run, which a thread watches."""

    def __init__(self, saved: Path) -> None:
        self.longest_s = 0.0
        """Up to now, also if no checkpoint has followed."""
        self._saved, self._end = saved, Event()
        self._thread = Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        newest, since_s = "", time.monotonic()
        while not self._end.wait(0.02):
            now = max((path.name for path in self._saved.glob("checkpoint_*-*")), default="")
            now_s = time.monotonic()
            self.longest_s = max(self.longest_s, now_s - since_s)
            if now != newest:
                newest, since_s = now, now_s


def restarts(cluster: RealCluster) -> list[int]:
    """How often the containers of the workers were restarted."""
    return [
        status["restartCount"]
        for pod in cluster.pods()
        if pod["metadata"]["labels"]["ray.io/node-type"] == "worker"
        for status in pod["status"]["containerStatuses"]
    ]


def launch(cluster: RealCluster, folder: Path, *components: str) -> None:
    """As `kubectl apply -k` does, with a run that leaves the CPU to the rest of the test."""
    built = with_component("resubmit", *components, folder=folder / "resubmit")
    job = one(built, "Job")
    [container] = job["spec"]["template"]["spec"]["containers"]
    container["command"] += [*LIGHT_FLAGS, f"--set=checkpoint_every_steps={SAVED_EVERY}"]
    container["command"] += ["--set=max_failures=-1"]
    account = [each for each in built if name_of(each).startswith("cockpit-resubmit")]
    for each in (*account, job):
        apply(cluster.testbed, each)


def kill_head(cluster: RealCluster) -> None:
    """Kill the first process of the head's container, so that the kubelet restarts it."""
    [head] = [p for p in cluster.pods() if p["metadata"]["labels"]["ray.io/node-type"] == "head"]
    [status] = head["status"]["containerStatuses"]
    container = status["containerID"].removeprefix("containerd://")
    space = cluster.testbed.plane.space
    space.run(*ctr(), "tasks", "kill", "--signal", "SIGKILL", container)


def delete_head(cluster: RealCluster) -> None:
    """The operator creates another pod, with another address."""
    delete(cluster, next(pod for pod in cluster.pods() if group_of(pod) == "headgroup"))


def delete(cluster: RealCluster, pod: Any) -> None:
    name = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}?gracePeriodSeconds=0"
    cluster.testbed.plane.ask("DELETE", name)


def group_of(pod: Any) -> str:
    return str(pod["metadata"]["labels"]["ray.io/group"])


def running(store: Store) -> RunView | None:
    """The newest run, once it has saved a checkpoint in its newest attempt."""
    run = current_run(store)
    attempt = run.attempt if run else None
    saved_s = run.checkpoint_s if run else None
    if attempt is None or attempt.first_step_s is None or saved_s is None:
        return None
    return run if saved_s > attempt.first_step_s else None


def seen(session: Session, cluster: RealCluster) -> str:
    pods = [(p["metadata"]["name"], p["status"].get("containerStatuses")) for p in cluster.pods()]
    return json.dumps(pods)[-4000:] + f"\n{current_run(session.store)}\n{session.store.jobs}"


@pytest.mark.parametrize("tables", ["memory", "redis"])
def test_run_is_submitted_again_after_its_head_was_killed_and_resumes(
    cluster: RealCluster, tmp_path: Path, tables: str
) -> None:
    if tables == "redis":
        use_redis(cluster, tmp_path / "redis")
    launch(cluster, tmp_path)
    with builder.session_on(cluster.backend()) as session:
        assert session.wait(lambda store: running(store) is not None, START_S), seen(
            session, cluster
        )
        before = current_run(session.store)
        assert before is not None
        assert before.attempt is not None
        step, jobs = before.attempt.last_step or 0, set(session.store.jobs)
        killed_s = session.clock()
        kill_head(cluster)

        def is_back(store: Store) -> bool:
            run = current_run(store)
            attempt = run.attempt if run else None
            return (
                attempt is not None
                and attempt.first_step_s is not None
                and attempt.first_step_s > killed_s
            )

        assert session.wait(is_back, START_S), seen(session, cluster)
        after = current_run(session.store)
        assert after is not None
        assert after.attempt is not None
        assert after.attempt.first_step_s is not None
        took_s = after.attempt.first_step_s - killed_s
        load = Path("/proc/loadavg").read_text().split()[0]
        print(f"first new step {took_s:.1f} s after the kill of the head, load {load}")
        assert after.name == RUN
        assert session.wait(lambda store: bool(set(store.jobs) - jobs), 60.0), "a new job"
        new = after.attempt
        assert session.wait(lambda store: new.first_step is not None, 60.0)
        assert new.first_step is not None
        assert new.first_step > step - 2 * SAVED_EVERY, "it resumed from a checkpoint"
    cluster.wait_ready(WORKERS, START_S)
    if tables == "redis":
        assert restarts(cluster) == [0] * WORKERS, "the nodes have survived"


def test_run_whose_driver_is_not_on_the_head_continues_while_the_head_is_replaced(
    cluster: RealCluster, tmp_path: Path
) -> None:
    use_redis(cluster, tmp_path / "redis", driver=True)
    launch(cluster, tmp_path, "driver")
    saved = cluster.testbed.plane.space.folder / "shared" / "checkpoints" / RUN
    with builder.session_on(cluster.backend()) as session:
        assert session.wait(lambda store: running(store) is not None, START_S), seen(
            session, cluster
        )
        jobs, first = set(session.store.jobs), newest_attempt(session.store)
        for lose in (kill_head, delete_head):
            with Pauses(saved) as pauses:
                lost_s = session.clock()
                lose(cluster)
                is_later = partial(has_saved, after_s=lost_s)
                assert session.wait(is_later, START_S), seen(session, cluster)
                shown_s = session.clock() - lost_s
                cluster.wait_ready(WORKERS + 1, START_S)
            lasted = f"no checkpoint for {pauses.longest_s:.1f} s, shown after {shown_s:.1f} s"
            print(f"{lose.__name__}: {lasted}")
            assert pauses.longest_s < LONGEST_PAUSE_S
            assert newest_attempt(session.store) == first, "the run was not interrupted"
            assert set(session.store.jobs) == jobs
        assert restarts(cluster) == [0] * (WORKERS + 1)

        lost_s = session.clock()
        kill_head(cluster)
        delete(cluster, next(pod for pod in cluster.pods() if group_of(pod) == "workers"))
        is_later = partial(has_saved, after_s=lost_s, attempt=first + 1)
        assert session.wait(is_later, START_S), seen(session, cluster)
        print(f"with a rank: saved again after {session.clock() - lost_s:.1f} s")
        assert set(session.store.jobs) == jobs, "the same driver restarted the ranks"


def newest_attempt(store: Store) -> int:
    run = current_run(store)
    assert run is not None
    assert run.attempt is not None
    return run.attempt.number


def has_saved(store: Store, *, after_s: float, attempt: int = 0) -> bool:
    """Whether the run has saved a checkpoint since then, in this attempt or a later one."""
    run = current_run(store)
    if run is None or run.attempt is None or run.attempt.number < attempt:
        return False
    return run.checkpoint_s is not None and run.checkpoint_s > after_s
