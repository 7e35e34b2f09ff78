"""Test clusters as pytest fixtures: each is started once, on first use."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import read
from cockpit.backends.kuberay.backend import KubeRayBackend
from cockpit.model.cluster import ClusterRef
from tests.cluster.build import missing, missing_nightly
from tests.cluster.raycluster import Group, ray_cluster
from tests.cluster.testbed import OPERATOR, Testbed

CLUSTERS = {"programs", "control_plane", "kubernetes", "ray_on_kubernetes"}
"""The fixtures of this module."""
why_not = cache(missing)
"""Why no Kubernetes can be started here; empty when it can."""


def cluster_wanted(item: pytest.Item) -> int:
    """How much of a cluster the test needs: 0 none, 1 its programs or API, 2 all of it."""
    names = set(getattr(item, "fixturenames", ()))
    return 2 if "kubernetes" in names else int(not names.isdisjoint(CLUSTERS))


def need_kubernetes() -> None:
    """Skip the test that calls it where no test cluster can be started."""
    if why := why_not():
        pytest.skip(f"no Kubernetes here: {why}")


def need_nightly(program: str) -> None:
    """Skip the nightly test that calls it where the program is not built."""
    if why := missing_nightly(program):
        pytest.skip(why)


def need_kuberay() -> None:
    """Skip the nightly test that calls it where there is no operator of KubeRay."""
    if not OPERATOR:
        pytest.skip("KUBERAY_OPERATOR does not name the binary of a KubeRay operator")


@pytest.fixture(scope="session")
def programs() -> None:
    """Built: for a test that starts a cluster, or a part of one, itself."""
    need_kubernetes()


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Testbed]:
    """An API server with KubeRay's kinds and KWOK; no pod runs for real, and no operator."""
    need_kubernetes()
    yield from _whole(Testbed.up(simulated=True))


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Testbed]:
    """The complete cluster: a node that runs pods, and the operator."""
    need_kubernetes()
    yield from _whole(Testbed.up(real=True, operator=True))


def _whole(testbed: Testbed) -> Iterator[Testbed]:
    """To the end of the session, when all of it must still run."""
    yield testbed
    ended = testbed.plane.space.ended()
    testbed.down()
    if ended:
        pytest.fail(ended)


@dataclass(frozen=True, slots=True)
class RealCluster:
    """A RayCluster whose pods run the real Ray."""

    testbed: Testbed
    ref: ClusterRef
    kubeconfig: Path

    def backend(self, kubeconfig: Path | None = None) -> KubeRayBackend:
        """A new one, of the administrator or of another user; close it in the loop that used it."""
        configured = read([kubeconfig or self.kubeconfig])
        return KubeRayBackend(Credentials(configured.context()), self.ref)

    def pods(self) -> list[Any]:
        """Raw, those of this cluster."""
        selector = f"labelSelector=ray.io%2Fcluster%3D{self.ref.name}"
        path = f"/api/v1/namespaces/{self.ref.namespace}/pods?{selector}"
        found: list[Any] = self.testbed.plane.ask("GET", path)["items"]
        return found

    def delete(self, timeout_s: float = 120.0) -> None:
        """Delete the RayCluster and wait until its pods no longer exist."""
        path = f"/apis/ray.io/v1/namespaces/{self.ref.namespace}/rayclusters/{self.ref.name}"
        self.testbed.plane.ask("DELETE", path)
        deadline = time.monotonic() + timeout_s
        while self.pods() and time.monotonic() < deadline:
            time.sleep(0.2)

    def wait_ready(self, workers: int, timeout_s: float = 600.0) -> None:
        """Until the head and exactly this number of workers exist, and are Ready."""
        deadline = time.monotonic() + timeout_s
        while True:
            pods = self.pods()
            ready = [_is_ready(pod) for pod in pods if not pod["metadata"].get("deletionTimestamp")]
            if len(pods) == len(ready) == workers + 1 and all(ready):
                return
            if time.monotonic() > deadline:
                states = [
                    (pod["metadata"]["name"], pod["status"].get("containerStatuses"))
                    for pod in pods
                ]
                raise AssertionError(f"not {workers} workers and a head in {timeout_s} s: {states}")
            time.sleep(0.2)


@pytest.fixture(scope="session")
def ray_on_kubernetes(kubernetes: Testbed) -> RealCluster:
    """The RayCluster `demo` in the namespace `ml`, with a token and one worker in `gpu`.

    Shared by everything that needs a real one: each test leaves it so.
    """
    return real_cluster(kubernetes, Group(capabilities=("NET_ADMIN",)))


def real_cluster(
    testbed: Testbed, group: Group, settings: Mapping[str, str] | None = None
) -> RealCluster:
    """Create the RayCluster `demo` in the namespace `ml`, and wait until its pods are ready.

    `settings` are environment variables of its pods.
    """
    namespace = testbed.namespace("ml")
    storage = testbed.plane.space.folder / "shared"
    body = ray_cluster(groups=(group,), namespace=namespace, storage=storage, settings=settings)
    testbed.plane.ask("POST", f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters", body)
    ref = ClusterRef("kuberay", "demo", namespace, testbed.kubeconfig.stem)
    made = RealCluster(testbed, ref, testbed.kubeconfig)
    try:
        made.wait_ready(group.replicas)
    except AssertionError:
        made.delete()  # the next test, or this one when it runs again, creates a new one
        raise
    return made


def _is_ready(pod: Any) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
