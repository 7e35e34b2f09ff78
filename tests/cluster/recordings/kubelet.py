"""The kubelet of a replay: it reports the recorded state of a pod on request."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from tests.cluster.operator.api import Api, ApiError
from tests.cluster.recordings.facts import State

BEAT_S = 5.0
_ADDRESS = "10.200.0.{}"


class Kubelet:
    """The kubelet of one node that no other controller manages."""

    def __init__(self, api: Api, node: str) -> None:
        self._api = api
        self._node = node
        self._addresses: dict[str, str] = {}

    async def run(self) -> None:
        """Keep the node alive: the pods of a node without updates are evicted."""
        room = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        await self._api.create("/api/v1/nodes", {"metadata": {"name": self._node}})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        try:
            while True:
                now = datetime.now(UTC)
                condition = {**ready, "lastHeartbeatTime": now.strftime("%Y-%m-%dT%H:%M:%SZ")}
                status = {"allocatable": room, "capacity": room, "conditions": [condition]}
                await self._api.merge(f"/api/v1/nodes/{self._node}/status", {"status": status})
                lease = {
                    "metadata": {"name": self._node},
                    "spec": {
                        "holderIdentity": self._node,
                        "leaseDurationSeconds": 40,
                        "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                    },
                }
                try:
                    await self._api.merge(f"{path}/{self._node}", lease)
                except ApiError as error:
                    if error.status != 404:
                        raise
                    await self._api.create(path, lease)
                await asyncio.sleep(BEAT_S)
        finally:
            await self._api.delete(f"/api/v1/nodes/{self._node}")

    async def take(self, namespace: str, name: str) -> None:
        """Bind the pod to this node: what is deleted with grace then waits for its kubelet."""
        binding = {
            "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self._node},
        }
        await self._api.create(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", binding)

    async def tell(self, pod: dict[str, Any], state: State) -> None:
        """The pod's status, from the recorded state."""
        meta, spec = pod["metadata"], pod["spec"]
        names = [container["name"] for container in spec["containers"]]
        inits = [container["name"] for container in spec.get("initContainers", ())]
        status: dict[str, Any] = {
            "phase": state["phase"],
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [_container(name, state) for name in names if name in state],
            "initContainerStatuses": [_container(name, state) for name in inits if name in state],
        }
        if "ready" in state:
            value, _, reason = state["ready"].partition(" ")
            unready = [s["name"] for s in status["containerStatuses"] if not s["ready"]]
            condition = {"type": "Ready", "status": value}
            if reason:
                condition["reason"] = reason
            if reason == "ContainersNotReady":
                text = " ".join(unready)
                condition["message"] = f"containers with unready status: [{text}]"
            status["conditions"].append(condition)
        if "address" in state:
            count = len(self._addresses) + 1
            address = self._addresses.setdefault(meta["uid"], _ADDRESS.format(count))
            status |= {"podIP": address, "podIPs": [{"ip": address}], "hostIP": "10.200.1.1"}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        await self._api.merge(path, {"status": status})


def _container(name: str, state: State) -> dict[str, Any]:
    terms = state[name].split()
    kind, rest = terms[0], terms[1:]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    restarts = int(rest[rest.index("restarts") + 1]) if "restarts" in rest else 0
    if kind == "terminated":
        detail: dict[str, Any] = {"exitCode": int(rest[1]), "startedAt": now, "finishedAt": now}
        reason = rest[2:3]
    else:
        detail = {"startedAt": now} if kind == "running" else {}
        reason = rest[:1] if kind == "waiting" else []
    if reason and reason != ["restarts"]:
        detail["reason"] = reason[0]
    ready = kind == "running" and state.get("ready", "").startswith("True")
    return {
        "name": name,
        "image": "localhost/ray:dev",
        "imageID": "",
        # A sidecar without a probe is ready as soon as it runs.
        "ready": ready or (kind == "running" and name == "autoscaler"),
        "restartCount": restarts,
        "state": {kind: detail},
    }
