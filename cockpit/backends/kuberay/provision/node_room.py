"""The room that nodes have for pods: what is free, and which pods they may take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.fields import is_ready, items, mapping, quantity, text
from cockpit.backends.kuberay.resources.raycluster import GPUS
from cockpit.model.new_cluster import NodeRoom
from cockpit.model.text import one_line

BLOCKS = ("NoSchedule", "NoExecute")
"""Effects of a taint that keep a pod without its toleration off the node."""
OVER = "status.phase!=Succeeded,status.phase!=Failed"


def requests(pod: Mapping[str, Any]) -> dict[str, float]:
    """What a pod requests: its containers together, or an init container that needs more."""
    total: dict[str, float] = {}
    for container in items(pod, "containers"):
        for name, amount in _of_container(container).items():
            total[name] = total.get(name, 0.0) + amount
    for container in items(pod, "initContainers"):
        for name, amount in _of_container(container).items():
            total[name] = max(total.get(name, 0.0), amount)
    return total


def _of_container(container: Mapping[str, Any]) -> dict[str, float]:
    resources = mapping(container, "resources")
    wanted = {**mapping(resources, "limits"), **mapping(resources, "requests")}
    return {str(name): quantity(amount) for name, amount in wanted.items()}


def gpus(amounts: Mapping[str, float]) -> float:
    return sum(amounts.get(name, 0.0) for name in GPUS)


async def used(client: KubeClient) -> dict[str, dict[str, float]]:
    """By node, what its pods request; `pods` is their number."""
    by_node: dict[str, dict[str, float]] = {}
    for raw in await client.objects("/api/v1/pods", {"fieldSelector": OVER}):
        pod = mapping(raw, "spec")
        of_node = by_node.setdefault(text(pod, "nodeName"), {})
        for name, amount in (*requests(pod).items(), ("pods", 1.0)):
            of_node[name] = of_node.get(name, 0.0) + amount
    return by_node


def rooms(
    nodes: Iterable[Any],
    taken: Mapping[str, Mapping[str, float]],
    groups: Mapping[str, Mapping[str, Any]],
) -> Iterable[NodeRoom]:
    for raw in nodes:
        spec, status = mapping(raw, "spec"), mapping(raw, "status")
        if not is_ready(raw) or spec.get("unschedulable"):
            continue
        name = text(mapping(raw, "metadata"), "name")
        there, of_pods = mapping(status, "allocatable"), taken.get(name, {})
        left = {
            each: max(0.0, quantity(there.get(each)) - of_pods.get(each, 0.0))
            for each in ("pods", "cpu", "memory", *GPUS)
        }
        takes = tuple(group for group, pod in groups.items() if _may_be_on(pod, raw))
        yield NodeRoom(one_line(name), left["pods"], left["cpu"], left["memory"], gpus(left), takes)


def _may_be_on(pod: Mapping[str, Any], node: Any) -> bool:
    """By node selector and tolerations; affinities are left to the scheduler."""
    labels = mapping(mapping(node, "metadata"), "labels")
    if any(labels.get(name) != value for name, value in mapping(pod, "nodeSelector").items()):
        return False
    taints = [
        each for each in items(mapping(node, "spec"), "taints") if text(each, "effect") in BLOCKS
    ]
    tolerations = items(pod, "tolerations")
    return all(any(_tolerates(each, taint) for each in tolerations) for taint in taints)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"""
    if text(toleration, "effect") not in ("", text(taint, "effect")):
        return False
    key = text(toleration, "key")
    if text(toleration, "operator") == "Exists":
        return key in ("", text(taint, "key"))
    return (key, text(toleration, "value")) == (text(taint, "key"), text(taint, "value"))
