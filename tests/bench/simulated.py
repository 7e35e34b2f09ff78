"""A RayCluster of a thousand simulated workers on a real API server, for measurements.

KWOK plays the kubelets: what cockpit reads is what it would read of real pods.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.bench.table import say
from tests.cluster import kwok
from tests.cluster.build import PROGRAMS, build, missing, unbuilt
from tests.cluster.control_plane import ControlPlane
from tests.cluster.testbed import Testbed

NAME = "big"
USER = "cockpit-bench"
NODES = 125
READY_TIMEOUT_S = 240.0


@dataclass(frozen=True, slots=True)
class Simulated:
    plane: ControlPlane
    kubeconfig: Path
    """Of a user whose requests the API server writes down."""
    workers: int

    @property
    def arguments(self) -> list[str]:
        return ["--context", self.kubeconfig.stem, "-n", NAME, "--cluster", NAME]

    @property
    def environment(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self.kubeconfig)}

    def requests_since(self, began_s: float) -> list[str]:
        """The requests of cockpit: `verb path`."""
        import json
        from datetime import datetime

        asked = []
        for line in self.plane.audit_log.read_text().splitlines():
            entry = json.loads(line)
            at_s = datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()
            if entry["user"].get("username") == USER and at_s >= began_s:
                if entry["stage"] == "ResponseStarted":
                    continue  # a watch is written down twice
                asked.append(f"{entry['verb']} {entry['requestURI'].partition('?')[0]}")
        return asked


@contextmanager
def simulated(workers: int, nodes: int = NODES) -> Iterator[Simulated]:
    """All pods ready. Everything ends with the block."""
    if why := missing():
        raise SystemExit(f"No Kubernetes can be started here: {why}.")
    build(unbuilt(PROGRAMS), say)
    testbed = Testbed.up(simulated=True)
    try:
        plane = testbed.plane
        say(f"{nodes} nodes, {workers} workers …")
        kwok.add_nodes(plane, nodes, gpus=max(8, -(-workers // nodes)))
        testbed.namespace(NAME)
        _make_cluster(plane, workers)
        _wait_until_running(plane)
        grant = {
            "metadata": {"name": USER},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"kind": "User", "name": USER}],
        }
        plane.ask("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", grant)
        yield Simulated(plane, plane.user_kubeconfig(USER), workers)
    finally:
        testbed.down()


@contextmanager
def changing(cluster: Simulated, per_s: float) -> Iterator[list[float]]:
    """Change a label of that many pods per second, as fast as possible. Yields the time of each."""
    ended = threading.Event()
    done: list[float] = []

    def change() -> None:
        with _client(cluster.plane) as http:
            number = 0
            next_s = time.monotonic()
            while not ended.is_set():
                path = f"/api/v1/namespaces/{NAME}/pods/{_worker(number % cluster.workers)}"
                body = {"metadata": {"labels": {"change": str(number)}}}
                kind = {"Content-Type": "application/merge-patch+json"}
                http.patch(path, json=body, headers=kind).raise_for_status()
                done.append(time.time())
                number += 1
                next_s += 1 / per_s
                ended.wait(max(0.0, next_s - time.monotonic()))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield done
    finally:
        ended.set()
        thread.join()


def _client(plane: ControlPlane) -> httpx.Client:
    folder = plane.authority.folder
    tls = ssl.create_default_context(cafile=str(plane.authority.certificate))
    tls.load_cert_chain(folder / "admin.crt", folder / "admin.key")
    return httpx.Client(base_url=plane.server, verify=tls, timeout=30)


def _worker(number: int) -> str:
    return f"{NAME}-gpu-worker-{number:05d}"


def _make_cluster(plane: ControlPlane, workers: int) -> None:
    template = {"spec": {"containers": [{"name": "ray", "image": "rayproject/ray:2.60.0"}]}}
    group = {
        "groupName": "gpu",
        "replicas": workers,
        "minReplicas": 0,
        "maxReplicas": 2 * workers,
        "rayStartParams": {},
        "template": template,
    }
    spec = {
        "rayVersion": "2.60.0",
        "headGroupSpec": {"rayStartParams": {}, "template": template},
        "workerGroupSpecs": [group],
    }
    path = f"/apis/ray.io/v1/namespaces/{NAME}/rayclusters"
    body = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": NAME}}
    made = plane.ask("POST", path, {**body, "spec": spec})
    status = {
        "state": "ready",
        "desiredWorkerReplicas": workers,
        "readyWorkerReplicas": workers,
        "availableWorkerReplicas": workers,
        "head": {"serviceName": f"{NAME}-head-svc", "podName": f"{NAME}-head"},
        "conditions": [
            _condition("HeadPodReady", "HeadPodRunningAndReady"),
            _condition("RayClusterProvisioned", "AllPodRunningAndReadyFirstTime"),
        ],
    }
    kind = "application/merge-patch+json"
    plane.ask("PATCH", f"{path}/{NAME}/status", {"status": status}, content=kind)
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": NAME, "controller": True}
    owners = [{**owner, "uid": made["metadata"]["uid"], "blockOwnerDeletion": True}]
    with _client(plane) as http, ThreadPoolExecutor(8) as pool:

        def make(number: int) -> None:
            body = _pod(number, owners)
            http.post(f"/api/v1/namespaces/{NAME}/pods", json=body).raise_for_status()

        list(pool.map(make, range(-1, workers)))


def _pod(number: int, owners: list[dict[str, Any]]) -> dict[str, Any]:
    """As large as the pods that KubeRay creates (10 KB each)."""
    head = number < 0
    labels = {
        "ray.io/cluster": NAME,
        "ray.io/group": "headgroup" if head else "gpu",
        "ray.io/node-type": "head" if head else "worker",
        "ray.io/is-ray-node": "yes",
        "ray.io/identifier": f"{NAME}-{'head' if head else 'worker'}",
        "ray.io/worker-group-replica-index": str(max(number, 0)),
    }
    probe = {
        "httpGet": {"path": "/api/healthz", "port": 52365},
        "initialDelaySeconds": 10,
        "periodSeconds": 5,
    }
    variables = [
        {"name": f"RAY_SETTING_{n}", "value": "as long as they are" * 3} for n in range(40)
    ]
    limits = {"nvidia.com/gpu": "1", "cpu": "1", "memory": "2Gi"}
    container: dict[str, Any] = {
        "name": "ray",
        "image": "rayproject/ray:2.60.0",
        "command": ["/bin/bash", "-c", "--"],
        "args": ["ulimit -n 65536; ray start --address=big-head-svc:6379 --block " * 4],
        "env": variables,
        "readinessProbe": probe,
        "livenessProbe": probe,
        "resources": {} if head else {"limits": limits},
    }
    waits = {
        "name": "wait-gcs-ready",
        "image": "rayproject/ray:2.60.0",
        "command": ["bash", "-c", "until ray health-check; do sleep 5; done; " * 20],
    }
    return {
        "metadata": {
            "name": f"{NAME}-head" if head else _worker(number),
            "labels": labels,
            "ownerReferences": owners,
        },
        "spec": {
            "tolerations": [kwok.TOLERATION],
            "containers": [container],
            "initContainers": [] if head else [waits],
        },
    }


def _condition(kind: str, reason: str) -> dict[str, str]:
    at = "2026-01-01T00:00:00Z"
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": "",
        "lastTransitionTime": at,
    }


def _wait_until_running(plane: ControlPlane) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    path = f"/api/v1/namespaces/{NAME}/pods?fieldSelector=status.phase%21%3DRunning&limit=1"
    while plane.ask("GET", path)["items"]:
        if time.monotonic() > deadline:
            raise TimeoutError("the simulated pods do not come up")
        time.sleep(0.5)
