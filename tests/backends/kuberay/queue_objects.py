"""Objects of Kueue and Volcano with the fields that their controllers write."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

GPU = "nvidia.com/gpu"


def workload(
    name: str = "rayjob-train-1a2b3",
    owner: str = "train",
    *,
    kind: str = "RayJob",
    queue: str = "team-a",
    gpus: int = 8,
    pods: int = 3,
    priority: int = 0,
    created: str = "2026-01-01T00:00:00Z",
    conditions: tuple[dict[str, str], ...] = (),
    **more: Any,
) -> dict[str, Any]:
    """`gpus` is the sum of all pods. `more`: `active`, or fields of the status."""
    container = {"name": "ray", "image": "train"}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec: dict[str, Any] = {
        "queueName": queue,
        "priority": priority,
        "active": more.pop("active", True),
        "podSets": [{"name": "workers", "count": pods, "template": template}],
    }
    requested = {GPU: str(gpus), "pods": str(pods)}
    status = {
        "conditions": list(conditions),
        "resourceRequests": [{"name": "workers", "resources": requested}],
        **more,
    }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "creationTimestamp": created,
            "ownerReferences": [
                {"apiVersion": "ray.io/v1", "kind": kind, "name": owner, "controller": True}
            ],
        },
        "spec": spec,
        "status": status,
    }


def condition(kind: str, status: bool, reason: str, message: str = "") -> dict[str, str]:
    return {
        "type": kind,
        "status": str(status),
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:01:00Z",
    }


PENDING = condition(
    "QuotaReserved",
    False,
    "Pending",
    "couldn't assign flavors to pod set workers: insufficient unused quota for nvidia.com/gpu in "
    "flavor a100, 4 more needed",
)
RESERVED = condition("QuotaReserved", True, "QuotaReserved", "Quota reserved in ClusterQueue gpus")
ADMITTED = condition("Admitted", True, "Admitted", "The workload is admitted")


def local_queue(name: str = "team-a", cluster_queue: str = "gpus", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"clusterQueue": cluster_queue, "stopPolicy": "None", **spec},
        "status": {
            "pendingWorkloads": 1,
            "reservingWorkloads": 0,
            "admittedWorkloads": 0,
            "conditions": [condition("Active", True, "Ready")],
        },
    }


def cluster_queue(
    name: str = "gpus",
    *,
    used: int = 4,
    nominal: int = 8,
    cohort: str = "",
    borrowing: int | None = None,
    lending: int | None = None,
    pending: int = 1,
    conditions: tuple[dict[str, str], ...] = (),
    **spec: Any,
) -> dict[str, Any]:
    quota: dict[str, Any] = {"name": GPU, "nominalQuota": str(nominal)}
    if borrowing is not None:
        quota["borrowingLimit"] = str(borrowing)
    if lending is not None:
        quota["lendingLimit"] = str(lending)
    flavors = [{"name": "a100", "resources": [quota]}]
    usage = [{"name": "a100", "resources": [{"name": GPU, "total": str(used), "borrowed": "0"}]}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            **({"cohort": cohort} if cohort else {}),
            "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}],
            **spec,
        },
        "status": {
            "flavorsReservation": usage,
            "flavorsUsage": usage,
            "pendingWorkloads": pending,
            "conditions": list(conditions),
        },
    }


def pod_group(
    name: str = "ray-demo-pg",
    owner: str = "demo",
    *,
    phase: str = "Pending",
    members: int = 3,
    running: int = 0,
    queue: str = "team-a",
    gpus: int = 8,
    unschedulable: str = "",
    scheduled_s: int | None = None,
) -> dict[str, Any]:
    """`scheduled_s`: when the condition Scheduled was set, in seconds after Unschedulable."""
    why = condition("Unschedulable", True, "NotEnoughResources", unschedulable)
    conditions = [why] if unschedulable else []
    if scheduled_s is not None:
        ready = condition("Scheduled", True, "tasks in gang are ready to be scheduled", "")
        began = datetime.fromisoformat(why["lastTransitionTime"])
        at = (began + timedelta(seconds=scheduled_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions.append(ready | {"lastTransitionTime": at})
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"kind": "RayCluster", "name": owner, "controller": True}],
        },
        "spec": {"minMember": members, "queue": queue, "minResources": {GPU: str(gpus)}},
        "status": {
            "phase": phase,
            "running": running,
            "conditions": conditions,
        },
    }


def volcano_queue(
    name: str = "team-a", *, capability: int = 8, allocated: int = 4, state: str = "Open"
) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, "capability": {GPU: str(capability)}},
        "status": {"state": state, "allocated": {GPU: str(allocated)}},
    }
