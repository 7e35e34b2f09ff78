"""The status of a RayCluster, from its spec and its pods."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.cluster.operator.api import Object
from tests.cluster.operator.pod import Pod
from tests.cluster.operator.quantity import Quantity, total
from tests.cluster.operator.raycluster import Cluster

SUSPENDING, SUSPENDED = "RayClusterSuspending", "RayClusterSuspended"
PROVISIONED, HEAD_READY = "RayClusterProvisioned", "HeadPodReady"
REPLICA_FAILURE = "ReplicaFailure"
MINOR = (
    "lastUpdateTime",
    "observedGeneration",
    "stateTransitionTimes",
    "desiredCPU",
    "desiredMemory",
    "desiredGPU",
    "desiredTPU",
)
"""Updated together with another change, and never the reason for an update."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why the pods are not yet as they should be."""

    message: str
    reason: str = ""
    """Of the condition ReplicaFailure; empty if the operator only retries later."""


def condition(status: Object, kind: str) -> Object | None:
    found: Iterable[Object] = (c for c in status.get("conditions", ()) if c["type"] == kind)
    return next(iter(found), None)


def holds(status: Object, kind: str) -> bool:
    found = condition(status, kind)
    return found is not None and found["status"] == "True"


def status(
    cluster: Cluster, pods: Sequence[Pod], service: Object | None, trouble: Trouble | None, now: str
) -> Object:
    """The next status. Zeros and empty strings are left out, as the real operator does."""
    after = copy.deepcopy(cluster.status)
    if trouble is None:
        _forget(after, REPLICA_FAILURE)
    elif trouble.reason:
        _set(after, REPLICA_FAILURE, "True", trouble.reason, trouble.message, now)
    _count(after, cluster, pods)
    if trouble is None and len(pods) == cluster.desired_workers + 1 and _all_ready(pods):
        after["state"] = "ready"
        after.pop("reason", None)
    _judge(after, cluster, pods, now)
    if cluster.suspend and not pods:
        after["state"] = "suspended"
    _locate(after, cluster, pods, service)
    after["lastUpdateTime"] = now
    if after.get("state") != cluster.status.get("state"):
        after["stateTransitionTimes"] = {
            **after.get("stateTransitionTimes", {}),
            after["state"]: now,
        }
    return after


def differs(before: Object, after: Object) -> bool:
    """Whether it is worth a request: a new generation or time alone are not."""
    return _without(before, MINOR) != _without(after, MINOR)


def _without(status: Object, names: Sequence[str]) -> Object:
    return {name: value for name, value in status.items() if name not in names}


def _count(after: Object, cluster: Cluster, pods: Sequence[Pod]) -> None:
    workers = [pod for pod in pods if not pod.head]
    active = [group for group in cluster.groups if not group.suspended]
    counts = {
        "observedGeneration": cluster.generation,
        "readyWorkerReplicas": sum(pod.running_and_ready for pod in workers),
        "availableWorkerReplicas": sum(pod.phase == "Running" for pod in workers),
        "desiredWorkerReplicas": cluster.desired_workers,
        "minWorkerReplicas": sum(group.min_replicas * group.hosts for group in active),
        "maxWorkerReplicas": min(
            sum(group.max_replicas * group.hosts for group in active), 2**31 - 1
        ),
    }
    for name, count in counts.items():
        _say(after, name, count)
    # The requested number, even above the maximum: this is how the real operator counts.
    wanted = [(cluster.head_template, 1)]
    wanted += [(group.template, group.replicas * group.hosts) for group in active]
    after["desiredCPU"] = _sum(wanted, ("cpu",))
    after["desiredMemory"] = _sum(wanted, ("memory",))
    after["desiredGPU"] = _sum(wanted, ("gpu",), whole_name=False)
    after["desiredTPU"] = _sum(wanted, ("google.com/tpu",))


def _judge(after: Object, cluster: Cluster, pods: Sequence[Pod], now: str) -> None:
    _set(after, HEAD_READY, *_head_ready(next((pod for pod in pods if pod.head), None)), now)
    suspending, suspended = holds(after, SUSPENDING), holds(after, SUSPENDED)
    if not holds(after, PROVISIONED) and not suspended:
        if _all_ready(pods):
            first = "All Ray Pods are ready for the first time"
            _set(after, PROVISIONED, "True", "AllPodRunningAndReadyFirstTime", first, now)
        else:
            first = "RayCluster Pods are being provisioned for first time"
            _set(after, PROVISIONED, "False", "RayClusterPodsProvisioning", first, now)
    if suspending:
        if not pods:
            removed = "RayCluster has been suspended"
            _set(after, PROVISIONED, "False", "RayClusterPodsProvisioning", removed, now)
            _set(after, SUSPENDING, "False", SUSPENDING, "", now)
            _set(after, SUSPENDED, "True", SUSPENDED, "", now)
    elif suspended:
        if cluster.suspend is False:
            _set(after, SUSPENDED, "False", SUSPENDED, "", now)
    else:
        _set(after, SUSPENDED, "False", SUSPENDED, "", now)
        _set(after, SUSPENDING, str(bool(cluster.suspend)), SUSPENDING, "", now)


def _head_ready(head: Pod | None) -> tuple[str, str, str]:
    """Status, reason and message of HeadPodReady."""
    if head is None:
        return "False", "HeadPodNotFound", "Head Pod not found"
    if head.ready is None:
        return "False", "Unknown", ""
    ready, reason, message = head.ready.status, head.ready.reason, head.ready.message
    if ready == "True":
        return ready, reason or "HeadPodRunningAndReady", message
    if reason == "ContainersNotReady" and head.waiting is not None:
        detail = f"{head.waiting.container}: {head.waiting.message}"
        return ready, head.waiting.reason, f"{message}; {detail}" if message else detail
    return ready, reason or "Unknown", message


def _locate(after: Object, cluster: Cluster, pods: Sequence[Pod], service: Object | None) -> None:
    if service is not None and service["spec"].get("ports"):
        after["endpoints"] = {
            port["name"]: str(port.get("nodePort") or port["targetPort"])
            for port in service["spec"]["ports"]
        }
    head = next((pod for pod in pods if pod.head), None)
    address = service["spec"].get("clusterIP", "") if service else ""
    where: Object = {}
    _say(where, "podIP", head.ip if head else "")
    _say(where, "podName", head.name if head else "")
    _say(where, "serviceIP", (head.ip if head else "") if address == "None" else address)
    _say(where, "serviceName", service["metadata"]["name"] if service else "")
    after["head"] = where


def _all_ready(pods: Sequence[Pod]) -> bool:
    """A pod without a readiness condition counts as ready, as in the real operator."""
    return bool(pods) and all(
        pod.phase == "Running" and (pod.ready is None or pod.ready.status == "True") for pod in pods
    )


def _sum(
    wanted: Sequence[tuple[Object, int]], names: Sequence[str], *, whole_name: bool = True
) -> str:
    parts = []
    for template, count in wanted:
        for container in template["spec"]["containers"]:
            resources = container.get("resources") or {}
            asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
            parts += [
                Quantity.parse(value).times(count)
                for name, value in asked.items()
                if (name in names if whole_name else name.endswith(tuple(names)))
            ]
    return str(total(parts))


def _say(target: Object, name: str, value: Any) -> None:
    if value:
        target[name] = value
    else:
        target.pop(name, None)


def _forget(after: Object, kind: str) -> None:
    if "conditions" in after:
        after["conditions"] = [c for c in after["conditions"] if c["type"] != kind]


def _set(after: Object, kind: str, state: str, reason: str, message: str, now: str) -> None:
    found = condition(after, kind)
    if found is None:
        found = {"type": kind, "status": state, "lastTransitionTime": now}
        after.setdefault("conditions", []).append(found)
    elif found["status"] != state:
        found["lastTransitionTime"] = now
    found.update(status=state, reason=reason, message=message)
