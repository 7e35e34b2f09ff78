"""How a cluster is doing: from its pods and conditions, never from `status.state`, which stays
`ready` while pods are dead. Pure."""

from __future__ import annotations

from collections.abc import Collection

from cockpit.backends.kuberay.resources.objects import worker_groups
from cockpit.backends.kuberay.resources.pod_reason import refusal
from cockpit.backends.kuberay.resources.raycluster import RayCluster
from cockpit.format import plural
from cockpit.model.cluster import ClusterHealth, NodeType, Pod, PodPhase
from cockpit.model.text import one_line

Verdict = tuple[ClusterHealth, str]
"""The health, and why in one line."""
_LIVING = (PodPhase.PENDING, PodPhase.RUNNING)


def health(cluster: RayCluster, pods: Collection[Pod]) -> Verdict:
    """From all of its pods. A head that is dead is down at once."""
    if cluster.deleting:
        return ClusterHealth.DOWN, "it is being deleted"
    if cluster.suspended:
        left = sum(pod.phase in _LIVING for pod in pods)
        if left:
            return ClusterHealth.SUSPENDED, f"suspending, {plural(left, 'pod')} left"
        if cluster.queue:
            return ClusterHealth.SUSPENDED, f"by Kueue, until queue {cluster.queue} admits it"
        return ClusterHealth.SUSPENDED, ""
    heads = [pod for pod in pods if pod.node_type is NodeType.HEAD]
    if not any(pod.ready for pod in heads):
        return _without_head(cluster, heads)
    groups = worker_groups(cluster, pods)
    wanted = sum(group.desired for group in groups)
    ready = sum(min(group.ready, group.desired) for group in groups)
    behind = {group.name for group in groups if group.ready < group.desired}
    return _by_count(cluster, ready, wanted, _failure(cluster) or _worst(pods, behind))


def health_alone(cluster: RayCluster) -> Verdict:
    """From the RayCluster's own conditions and counts, where its pods are not known."""
    if cluster.deleting or cluster.suspended:
        return health(cluster, ())
    head = cluster.condition("HeadPodReady")
    if head is None or not head[0]:
        if not _provisioned(cluster):
            message = (
                "the head is not ready yet" if head else "its operator has not taken it up yet"
            )
            return ClusterHealth.STARTING, _failure(cluster) or message
        message = f": {head[1]}" if head is not None and head[1] else ""
        return ClusterHealth.DOWN, _failure(cluster) or one_line(f"the head is down{message}")
    wanted = sum(group.wanted * group.hosts for group in cluster.groups if not group.suspended)
    return _by_count(cluster, min(cluster.ready_workers, wanted), wanted, _failure(cluster))


def _by_count(cluster: RayCluster, ready: int, wanted: int, why: str) -> Verdict:
    if ready >= wanted:
        return ClusterHealth.READY, _failure(cluster)
    message = f"{ready} of {plural(wanted, 'worker')} ready" + (f": {why}" if why else "")
    now = ClusterHealth.DEGRADED if _provisioned(cluster) else ClusterHealth.STARTING
    return now, one_line(message)


def _without_head(cluster: RayCluster, heads: list[Pod]) -> Verdict:
    provisioned = _provisioned(cluster)
    now = ClusterHealth.DOWN if provisioned else ClusterHealth.STARTING
    if not heads:
        reason = "the head's pod does not exist" if provisioned else "the head has no pod yet"
        return now, _failure(cluster) or reason
    newest = max(heads, key=lambda pod: (pod.phase in _LIVING, pod.created_s))
    if newest.phase is PodPhase.FAILED:
        return ClusterHealth.DOWN, one_line(f"the head failed: {newest.reason}")
    return now, one_line(f"head: {newest.reason or 'not ready'}")


def _provisioned(cluster: RayCluster) -> bool:
    """All its pods were ready once, since it was made or resumed."""
    found = cluster.condition("RayClusterProvisioned")
    return found is not None and found[0]


def _failure(cluster: RayCluster) -> str:
    """Why pods cannot be made."""
    found = cluster.condition("ReplicaFailure")
    return (refusal(found[1]) or "pods cannot be made") if found is not None and found[0] else ""


def _worst(pods: Collection[Pod], groups: set[str]) -> str:
    """The reason of the most severe pod: a crashing one before a waiting one."""
    behind = [pod for pod in pods if pod.group in groups and not pod.ready and pod.reason]
    if not behind:
        return ""
    worst = max(behind, key=lambda pod: (pod.phase in _LIVING, pod.restarts, pod.created_s))
    return f"{worst.name}: {worst.reason}"
