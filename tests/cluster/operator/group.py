"""Decide which pods of a worker group to create and which to delete."""

from __future__ import annotations

import random
import secrets
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.cluster.operator.pod import Pod
from tests.cluster.operator.raycluster import Cluster, Group


@dataclass(frozen=True, slots=True)
class Deletion:
    pod: Pod
    said: str
    """The event that reports it."""


@dataclass(frozen=True, slots=True)
class Creation:
    index: int
    host: int = 0
    replica: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    deletions: tuple[Deletion, ...] = ()
    creations: tuple[Creation, ...] = ()
    unfinished: str = ""
    """Why the rest of the cluster has to wait for the next look."""


def plan(cluster: Cluster, group: Group, pods: Sequence[Pod]) -> Plan:
    if group.suspended:
        text = f"Deleted all pods for suspended worker group {group.name} in RayCluster "
        going = [Deletion(pod, f"{text}{cluster.key}") for pod in pods if not pod.going]
        return Plan(deletions=tuple(going))
    if group.hosts > 1:
        return _replicas(cluster, group, pods)
    return _pods(cluster, group, pods)


def beyond_help(pod: Pod) -> bool:
    """Nothing on its node will start it again."""
    if pod.phase in ("Failed", "Succeeded"):
        return True
    return pod.phase == "Running" and pod.ended is not None and pod.restart_policy == "Never"


def obituary(pod: Pod) -> str:
    """The end of the event that reports why a pod was deleted."""
    how = "nil"
    if pod.ended is not None:
        how = (
            f"{{ExitCode:{pod.ended.exit_code} Reason:{pod.ended.reason} "
            f"StartedAt:{pod.ended.started} FinishedAt:{pod.ended.finished}}}"
        )
    return (
        f"Pod status: {pod.phase}; Pod restart policy: {pod.restart_policy}; "
        f"Ray container terminated status: {how}"
    )


def _pods(cluster: Cluster, group: Group, pods: Sequence[Pod]) -> Plan:
    lost = [pod for pod in pods if beyond_help(pod)]
    if lost:
        reported = [
            Deletion(pod, f"Deleted worker Pod {_place(pod)}; {obituary(pod)}") for pod in lost
        ]
        return Plan(tuple(reported), unfinished=f"delete {len(lost)} unhealthy worker Pods")
    named = [pod for pod in pods if pod.name in group.workers_to_delete]
    deletions = [Deletion(pod, f"Deleted pod {_place(pod)}") for pod in named]
    kept = [pod for pod in pods if pod not in named]
    surplus = len(kept) - group.desired_pods
    if surplus > 0 and cluster.autoscaler is None:
        picked = random.sample(kept, surplus)
        deletions += [Deletion(pod, f"Deleted Pod {_place(pod)}") for pod in picked]
    free = _free({pod.replica_index for pod in kept})
    return Plan(tuple(deletions), tuple(Creation(next(free)) for _ in range(-surplus)))


def _replicas(cluster: Cluster, group: Group, pods: Sequence[Pod]) -> Plan:
    """A multi-host replica is created and deleted as a unit."""
    replicas: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.replica_name:
            replicas.setdefault(pod.replica_name, []).append(pod)

    def delete(members: Sequence[Pod], why: str) -> tuple[Deletion, ...]:
        text = f"for group {group.name}: {why}"
        return tuple(Deletion(pod, f"Deleted worker Pod {_place(pod)} {text}") for pod in members)

    for name, members in replicas.items():
        if len(members) < group.hosts:
            return Plan(
                delete(members, "cleanup of incomplete multi-host group"),
                unfinished=f"cleaned up incomplete replica group {name}, requeueing",
            )
    lost = {pod.replica_name for pod in pods if pod.replica_name and beyond_help(pod)}
    deletions = tuple(
        deletion
        for name in lost
        for deletion in delete(replicas.pop(name), "one of its pods has ended")
    )
    named = {pod.replica_name for pod in pods if pod.name in group.workers_to_delete} - lost
    if named:
        members = [pod for name in named for pod in replicas[name]]
        deletions += delete(members, "autoscaler scale-down request")
        return Plan(deletions, unfinished=f"deleted {len(members)} worker Pods, requeueing")
    surplus = len(replicas) - group.desired_replicas
    if surplus > 0 and cluster.autoscaler is None:
        for name in random.sample(sorted(replicas), surplus):
            deletions += delete(replicas[name], "scaling down")
    free = _free({pods[0].replica_index for pods in replicas.values()})
    creations = []
    for _ in range(-surplus):
        index, name = next(free), f"{group.name}-{_suffix()}"
        creations += [Creation(index, host, name) for host in range(group.hosts)]
    return Plan(deletions, tuple(creations))


def _place(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _free(taken: set[int | None]) -> Iterator[int]:
    index = 0
    while True:
        if index not in taken:
            yield index
        index += 1


def _suffix() -> str:
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(5))
