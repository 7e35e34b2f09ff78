"""Build the JSON patch of a scale request, and its warnings. Pure.

Numbers of a request are replicas, as in the spec: a multi-host replica is several pods. The patch
tests the group's name and the numbers on which it is based, so that it fails after a concurrent
change and is retried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from cockpit.backends.kuberay.api.fields import mapping, whole
from cockpit.backends.kuberay.resources.raycluster import GroupSpec, RayCluster
from cockpit.format import verb
from cockpit.model.cluster import Pod, PodPhase
from cockpit.model.error import UsageError
from cockpit.model.scale import (
    ScaleRequest,
    autoscaler_effect,
    clamped,
    require_bounds,
    require_removable,
)
from cockpit.model.text import one_line

Step = Mapping[str, Any]
"""One operation of a JSON patch."""


class Plan(Struct, frozen=True):
    """`before` and `after` are replicas. An empty patch: there is nothing to change."""

    before: int
    after: int
    patch: tuple[Step, ...]
    warning: str = ""
    removed: tuple[str, ...] = ()
    """Pods that are removed because of the names in `remove`."""


def find(cluster: RayCluster, name: str) -> GroupSpec:
    """The group of that name. UsageError when there is none such."""
    for group in cluster.groups:
        if group.name == name:
            return group
    names = ", ".join(group.name for group in cluster.groups)
    raise UsageError(
        f"There is no worker group {one_line(name)!r} in RayCluster {cluster.name}.",
        f"Groups: {names}." if names else "It has no worker groups.",
    )


def plan(
    cluster: RayCluster,
    raw: Mapping[str, Any],
    request: ScaleRequest,
    pods: Sequence[Pod],
    idle_s: int,
) -> Plan:
    """`cluster` and `raw` are the current object, `pods` those of the group.

    `idle_s`: the time after which the autoscaler removes an idle worker, if the group does not set
    it. Raises UsageError for an unknown group or pod and for invalid numbers.
    """
    old = find(cluster, request.group)
    path, item = _item(raw, old.name)
    least = old.min if request.min_replicas is None else request.min_replicas
    most = old.max if request.max_replicas is None else request.max_replicas
    require_bounds(old.name, request.replicas, least, most)
    going = _replicas_of(request, pods, old)
    wanted = old.replicas if request.replicas is None else request.replicas
    if request.replicas is None and going:
        wanted = max(0, old.wanted - len(going))
    after, limited = clamped(wanted, least, most)
    changes = [
        *_number(item, path, "minReplicas", old.min, request.min_replicas),
        *_number(item, path, "maxReplicas", old.max, request.max_replicas),
        *_number(item, path, "replicas", old.replicas, after if after != old.replicas else None),
        *_deletions(item, path, old, request.remove, pods),
    ]
    warnings = [
        limited,
        _suspended(cluster, old),
        _together(going, request.remove, old),
        _replaced(old, after, len(going)),
        _autoscaled(cluster, old, after, least, pods, whole(item, "idleTimeoutSeconds", idle_s))
        if not going
        else "",
    ]
    return Plan(
        before=old.wanted,
        after=after,
        patch=(*_guard(item, path), *changes) if changes else (),
        warning=" ".join(warning for warning in warnings if warning),
        removed=tuple(sorted(name for names in going.values() for name in names)),
    )


def forget(
    cluster: RayCluster, raw: Mapping[str, Any], name: str, names: Sequence[str]
) -> tuple[Step, ...]:
    """A patch that removes `names`, whose pods no longer exist, from workersToDelete; or none."""
    path, item = _item(raw, find(cluster, name).name)
    listed = mapping(item, "scaleStrategy").get("workersToDelete")
    if not isinstance(listed, list):
        return ()
    kept = [entry for entry in listed if entry not in names]
    if len(kept) == len(listed):
        return ()
    where = f"{path}/scaleStrategy/workersToDelete"
    return (
        _test(f"{path}/groupName", item["groupName"]),
        _test(where, listed),
        {"op": "replace", "path": where, "value": kept},
    )


def _item(raw: Mapping[str, Any], name: str) -> tuple[str, Mapping[str, Any]]:
    """The group's place in the object, and the value there. The group is known to be there."""
    groups = mapping(raw, "spec")["workerGroupSpecs"]
    index = next(
        index
        for index, item in enumerate(groups)
        if isinstance(item, dict) and one_line(str(item.get("groupName"))) == name
    )
    return f"/spec/workerGroupSpecs/{index}", groups[index]


def _replicas_of(
    request: ScaleRequest, pods: Sequence[Pod], old: GroupSpec
) -> dict[str, tuple[str, ...]]:
    """By replica, all pods that are removed with the named ones: a replica's hosts together."""
    require_removable(old.name, request.remove, pods, request.remove_uids)
    by_name = {pod.name: pod for pod in pods}
    going: dict[str, tuple[str, ...]] = {}
    for name in request.remove:
        replica = by_name[name].replica if old.hosts > 1 else ""
        together = tuple(pod.name for pod in pods if replica and pod.replica == replica)
        going[replica or name] = together or (name,)
    return going


def _guard(item: Mapping[str, Any], path: str) -> list[Step]:
    """All three numbers, although perhaps one changes: what is clamped depends on them."""
    numbers = ("replicas", "minReplicas", "maxReplicas")
    return [
        _test(f"{path}/groupName", item["groupName"]),
        *(_test(f"{path}/{key}", item[key]) for key in numbers if item.get(key) is not None),
    ]


def _number(item: Mapping[str, Any], path: str, key: str, old: int, new: int | None) -> list[Step]:
    if new is None or (new == old and item.get(key) is not None):
        return []
    # `add` on a key that is there replaces it.
    return [{"op": "add", "path": f"{path}/{key}", "value": new}]


def _deletions(
    item: Mapping[str, Any], path: str, old: GroupSpec, remove: Sequence[str], pods: Sequence[Pod]
) -> list[Step]:
    """Names to remove, after those in progress; names whose pods no longer exist are dropped."""
    there = {pod.name for pod in pods}
    kept = [name for name in old.to_delete if name in there and name not in remove]
    names = [*kept, *dict.fromkeys(remove)]
    if names == list(old.to_delete):
        return []
    if not isinstance(item.get("scaleStrategy"), dict):
        strategy = {"workersToDelete": names}
        return [{"op": "add", "path": f"{path}/scaleStrategy", "value": strategy}]
    return [{"op": "add", "path": f"{path}/scaleStrategy/workersToDelete", "value": names}]


def _test(path: str, found: Any) -> Step:
    return {"op": "test", "path": path, "value": found}


def _suspended(cluster: RayCluster, old: GroupSpec) -> str:
    if cluster.suspended:
        return "The cluster is suspended: there are no pods until it is unsuspended."
    if old.suspended:
        return f"Group {old.name} is suspended: it has no pods until it is unsuspended."
    return ""


def _together(going: Mapping[str, Sequence[str]], remove: Sequence[str], old: GroupSpec) -> str:
    notes = []
    for replica, names in going.items():
        if others := [name for name in names if name not in remove]:
            who = f"{', '.join(others)} {verb(len(others), 'go')} too"
            notes.append(f"{who}: replica {replica} spans {old.hosts} hosts.")
    return " ".join(notes)


def _replaced(old: GroupSpec, after: int, removed: int) -> str:
    new = removed - (old.wanted - after)
    if removed and new > 0:
        return f"{new} of them {verb(new, 'are')} replaced: {after} stay wanted."
    return ""


def _autoscaled(
    cluster: RayCluster,
    old: GroupSpec,
    after: int,
    least: int,
    pods: Sequence[Pod],
    idle_s: int,
) -> str:
    if not cluster.autoscaled:
        return ""
    running = sum(pod.phase in (PodPhase.PENDING, PodPhase.RUNNING) for pod in pods)
    if (after > old.wanted and after <= least) or (
        after < old.wanted and running <= after * old.hosts
    ):
        return ""
    return autoscaler_effect(old.name, old.wanted, after, idle_s)
