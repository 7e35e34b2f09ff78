"""Parse Kubernetes objects into the model's structs.

Objects may be malformed: a field that is missing, null or of another type becomes its empty value,
and control characters are removed from all text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cockpit.backends.kuberay.api.fields import (
    boolean,
    is_ready,
    items,
    mapping,
    quantity,
    seconds,
    text,
    whole,
)
from cockpit.backends.kuberay.resources import pod_reason
from cockpit.backends.kuberay.resources.raycluster import (
    GPUS,
    UNBOUNDED,
    GroupSpec,
    RayCluster,
    queue_of,
)
from cockpit.backends.kuberay.waiting.pod_stage import claims, pod_stage
from cockpit.model.cluster import (
    ClusterHealth,
    ClusterRef,
    ClusterSummary,
    KubernetesNode,
    NodeType,
    Pod,
    PodPhase,
    WorkerGroup,
)
from cockpit.model.event import Notice
from cockpit.model.run import Job, JobStatus
from cockpit.model.secret import masked, masked_value
from cockpit.model.waiting import WaitStage

CLUSTER_LABEL = "ray.io/cluster"
GROUP_LABEL = "ray.io/group"
TYPE_LABEL = "ray.io/node-type"
INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
REPLICA_LABEL = "ray.io/worker-group-replica-name"


def pod(raw: Any) -> Pod:
    meta, spec, status = mapping(raw, "metadata"), mapping(raw, "spec"), mapping(raw, "status")
    labels = mapping(meta, "labels")
    statuses = items(status, "containerStatuses")
    ready = is_ready(raw) and "deletionTimestamp" not in meta
    ended = [
        seconds(mapping(mapping(each, "state"), "terminated").get("finishedAt"))
        for each in statuses
    ]
    phase = _phase(meta, status)
    stage = "" if ready else pod_stage(raw)
    waits = not ready and phase is PodPhase.PENDING
    may_wait_for_volume = waits and stage in (WaitStage.VOLUME, "")
    return Pod(
        name=text(meta, "name"),
        group=text(labels, GROUP_LABEL),
        node_type=NodeType.HEAD if text(labels, TYPE_LABEL) == "head" else NodeType.WORKER,
        phase=phase,
        ready=ready,
        ip=text(status, "podIP"),
        created_s=seconds(meta.get("creationTimestamp")),
        ended_s=(max(ended, default=0.0) or None) if phase is PodPhase.FAILED else None,
        restarts=sum(whole(each, "restartCount") for each in statuses),
        reason="" if ready else pod_reason.reason(raw),
        host=text(spec, "nodeName"),
        gpus=sum(
            quantity(mapping(mapping(each, "resources"), "limits").get(name))
            for each in items(spec, "containers")
            for name in GPUS
        ),
        replica=text(labels, REPLICA_LABEL),
        uid=text(meta, "uid"),
        stage=stage,
        claims=claims(raw) if may_wait_for_volume else (),
    )


def _phase(meta: Mapping[str, Any], status: Mapping[str, Any]) -> PodPhase:
    phase = text(status, "phase")
    if "deletionTimestamp" in meta and phase not in (PodPhase.FAILED, PodPhase.SUCCEEDED):
        return PodPhase.TERMINATING
    try:
        return PodPhase(phase)
    except ValueError:
        return PodPhase.PENDING if not phase else PodPhase.UNKNOWN


def worker_groups(cluster: RayCluster, pods: Iterable[Pod]) -> tuple[WorkerGroup, ...]:
    """The groups with the counts of their pods, and in a line what the counts do not show."""
    there: dict[str, list[Pod]] = {group.name: [] for group in cluster.groups}
    for each in pods:
        if each.phase not in (PodPhase.FAILED, PodPhase.SUCCEEDED):
            there.setdefault(each.group, []).append(each)
    made = []
    for group in cluster.groups:
        living = there[group.name]
        staying = [each for each in living if each.phase is not PodPhase.TERMINATING]
        off = cluster.suspended or group.suspended
        desired = 0 if off else group.wanted * group.hosts
        made.append(
            WorkerGroup(
                name=group.name,
                desired=desired,
                ready=sum(each.ready for each in living),
                min=group.min * group.hosts,
                max=min(group.max * group.hosts, UNBOUNDED),
                resources=group.resources,
                hosts=group.hosts,
                autoscaled=cluster.autoscaled,
                suspended=off,
                note=_note(cluster, group, desired, len(staying)),
            )
        )
    return tuple(made)


def _note(cluster: RayCluster, group: GroupSpec, desired: int, running: int) -> str:
    notes = []
    if cluster.autoscaled and running > desired:
        notes.append(f"{running} running, held by the autoscaler until idle")
    if group.replicas != group.wanted:
        bound = f"max {group.max}" if group.replicas > group.max else f"min {group.min}"
        notes.append(f"limited to {group.wanted} ({bound}), asks for {group.replicas}")
    return "; ".join(notes)


def kubernetes_node(raw: Any) -> KubernetesNode:
    meta, spec, status = mapping(raw, "metadata"), mapping(raw, "spec"), mapping(raw, "status")
    room, capacity = mapping(status, "allocatable"), mapping(status, "capacity")
    ready: dict[str, Any] = next(
        (e for e in items(status, "conditions") if text(e, "type") == "Ready"), {}
    )
    under = [
        text(each, "type")
        for each in items(status, "conditions")
        if text(each, "type") != "Ready" and _is_problem(each)
    ]
    is_ready = text(ready, "status") == "True"
    taints = [taint for taint in items(spec, "taints") if _PROBLEM_TAINT.search(_taint(taint))]
    addresses = items(status, "addresses")
    return KubernetesNode(
        name=text(meta, "name"),
        ready=is_ready,
        cordoned=boolean(spec, "unschedulable"),
        reason=", ".join(under) if is_ready else text(ready, "message") or text(ready, "reason"),
        ip=next((text(e, "address") for e in addresses if text(e, "type") == "InternalIP"), ""),
        version=text(mapping(status, "nodeInfo"), "kubeletVersion"),
        type=text(mapping(meta, "labels"), INSTANCE_TYPE_LABEL),
        created_s=seconds(meta.get("creationTimestamp")),
        uid=text(meta, "uid"),
        cpus=quantity(room.get("cpu")),
        memory_bytes=int(quantity(room.get("memory"))),
        gpus=sum(quantity(room.get(name)) for name in GPUS),
        gpus_withdrawn=sum(
            max(0.0, quantity(capacity.get(name)) - quantity(room.get(name))) for name in GPUS
        ),
        taints=tuple(
            ":".join(part for part in (text(each, "key"), text(each, "effect")) if part)
            for each in items(spec, "taints")
        ),
        problems=(*under, *(f"taint {_taint(taint)}" for taint in taints)),
    )


def _is_problem(condition: Mapping[str, Any]) -> bool:
    """A condition is a problem if it is True, or if it is False with a name such as `GpuHealthy`.

    Applies to the conditions of Kubernetes and of node-problem-detector.
    """
    wrong = "False" if _GOOD_CONDITION.search(text(condition, "type")) else "True"
    return text(condition, "status") == wrong


def _taint(taint: Mapping[str, Any]) -> str:
    value = text(taint, "value")
    return text(taint, "key") + (f"={value}" if value else "")


_GOOD_CONDITION = re.compile(r"(?<!Not)(Healthy|Ready|Available|OK|Active|Installed|Initialized)$")
_PROBLEM_TAINT = re.compile(
    r"^node\.cloudprovider\.kubernetes\.io/shutdown|unhealthy|problem|(?<!de)fault|degraded|error"
    r"|broken|xid",
    re.IGNORECASE,
)
"""Other taints repeat a condition (`node.kubernetes.io/not-ready`), or declare the use of the node
(`nvidia.com/gpu=present`)."""


def summary(cluster: RayCluster, context: str, health: tuple[ClusterHealth, str]) -> ClusterSummary:
    desired = 0 if cluster.suspended else sum(g.wanted * g.hosts for g in cluster.groups)
    return ClusterSummary(
        ref=ClusterRef("kuberay", cluster.name, cluster.namespace, context),
        health=health[0],
        message=health[1],
        desired=desired,
        ready=cluster.ready_workers,
        groups=len(cluster.groups),
        gpus=sum(g.wanted * g.hosts * g.resources.gpus for g in cluster.groups)
        if not cluster.suspended
        else 0.0,
        ray_version=cluster.ray_version,
        created_s=cluster.created_s,
        autoscaled=cluster.autoscaled,
    )


_ENDED = {
    "Complete": JobStatus.SUCCEEDED,
    "Failed": JobStatus.FAILED,
    "ValidationFailed": JobStatus.FAILED,  # the operator refuses it, and never looks at it again
}
_STATUSES = {status.value: status for status in JobStatus}


def ray_job(raw: Any) -> Job:
    """A RayJob. Its id is that of its submission, or its own name until there is one."""
    meta, spec, status = mapping(raw, "metadata"), mapping(raw, "spec"), mapping(raw, "status")
    name = text(meta, "name")
    queue = queue_of(meta)
    deployment = text(status, "jobDeploymentStatus")
    label = text(status, "jobStatus")
    job_status = _STATUSES.get(label) or _ENDED.get(deployment) or JobStatus.PENDING
    if not job_status.is_over and deployment in _ENDED:
        job_status = _ENDED[deployment]  # it failed before it was ever submitted
    elif deployment == "Retrying":
        job_status = JobStatus.PENDING  # jobStatus is that of the try that failed
    elif deployment == "Suspended":
        job_status = JobStatus.PENDING if queue else JobStatus.STOPPED
    return Job(
        id=text(status, "jobId") or text(spec, "jobId") or name,
        entrypoint=masked(text(spec, "entrypoint", 2000)),
        status=job_status,
        message=masked(text(status, "message", 2000)) or text(status, "reason"),
        started_s=seconds(status.get("startTime")) or seconds(meta.get("creationTimestamp")),
        ended_s=seconds(status.get("endTime")) or None,
        metadata={
            text({"k": k}, "k"): masked_value(k, text({"v": v}, "v"))
            for k, v in mapping(spec, "metadata").items()
        },
        rayjob=name,
        rayjob_uid=text(meta, "uid"),
        deployment=deployment or "New",
        submitted=bool(label),
        cluster=text(status, "rayClusterName")
        or text(mapping(spec, "clusterSelector"), CLUSTER_LABEL),
        queue=queue,
        retries=whole(spec, "backoffLimit"),
        failed=whole(status, "failed"),
    )


def notice(raw: Any, source: str) -> Notice:
    """A core/v1 Event. Its time is that of its last occurrence."""
    about = mapping(raw, "involvedObject")
    when = (
        raw.get("lastTimestamp")
        or mapping(raw, "series").get("lastObservedTime")
        or raw.get("eventTime")
        or mapping(raw, "metadata").get("creationTimestamp")
    )
    count = max(whole(raw, "count", 1), whole(mapping(raw, "series"), "count", 1))
    message = text(raw, "message", 500)
    return Notice(
        at_s=seconds(when),
        source=source,
        kind=_KINDS.get(text(about, "kind"), text(about, "kind")),
        name=text(about, "name"),
        reason=text(raw, "reason"),
        message=f"{message} (×{count})" if count > 1 else message,
        warning=text(raw, "type") == "Warning",
    )


_KINDS = {"RayCluster": "Cluster", "RayJob": "Job"}


def pods_in_order(pods: Iterable[Pod]) -> Sequence[Pod]:
    return sorted(
        pods, key=lambda each: (each.node_type is not NodeType.HEAD, each.group, each.name)
    )
