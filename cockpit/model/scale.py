"""Plan a change of a worker group's size: the new numbers, and notes for before and after.

Counts are replicas, which are pods unless a replica spans several hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from cockpit.format import in_seconds, plural
from cockpit.model.cluster import Pod, WorkerGroup
from cockpit.model.error import ReplacedError, UsageError
from cockpit.model.text import one_line


class ScaleRequest(Struct, frozen=True):
    """A change of a worker group's size. None keeps the current number."""

    group: str
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    remove: tuple[str, ...] = ()
    """Pods to remove first, by name."""
    uid: str = ""
    """Apply only to the cluster with this UID (`ClusterSeen.uid`); empty: to any."""
    expected: int | None = None
    """Only if this number of replicas is requested now; else the backend raises ChangedError."""
    remove_uids: tuple[str, ...] = ()
    """The UIDs of the pods in `remove`, in its order: no other pod of that name is removed. Empty:
    any is."""


class ScalePlan(Struct, frozen=True):
    """`after` is within the group's bounds; None: only its bounds or specific pods change."""

    group: WorkerGroup
    before: int
    after: int | None
    low: int
    high: int
    lines: tuple[str, ...]
    """The plan in sentences, for the confirmation."""


def plan_scale(
    group: WorkerGroup,
    replicas: int | None,
    *,
    min_replicas: int | None = None,
    max_replicas: int | None = None,
    remove: Sequence[str] = (),
) -> ScalePlan:
    """As for `Backend.scale`: None keeps the current number, and `remove` names pods."""
    before = group.desired // group.hosts
    low = group.min // group.hosts if min_replicas is None else min_replicas
    high = group.max // group.hosts if max_replicas is None else max_replicas
    given = (("min", min_replicas), ("max", max_replicas))
    bounds = [f"{name} {number}" for name, number in given if number is not None]
    after, warning = (None, "") if replicas is None else clamped(replicas, low, high)
    lines = []
    if after is not None:
        lines += [f"Scale group {group.name} from {before} to {unit(after, group)}.", warning]
    elif bounds:
        has = unit(before, group)
        lines.append(f"Change group {group.name}, which has {has}: {', '.join(bounds)}.")
    if remove:
        lines.append(f"Removed first: {', '.join(remove)}.")
        if group.hosts > 1:
            lines.append(f"With each, all {group.hosts} pods of its replica are removed.")
    if remove or (after is not None and after < before):
        lines.append("If a removed pod has ranks of a run, the attempt ends and the run restarts.")
    if group.suspended:
        lines.append("The group is suspended: it has no pods until the cluster is unsuspended.")
    if group.note:
        lines.append(f"At present: {group.note}.")
    if group.autoscaled and after is not None:
        settled = min_replicas is not None if after > before else bool(remove)
        lines.append(
            ("" if settled else autoscaler_effect(group.name, before, after))
            or "Ray's autoscaler continues to change this number."
        )
    return ScalePlan(group, before, after, low, high, tuple(line for line in lines if line))


def require_removable(
    group: str, remove: Sequence[str], pods: Iterable[Pod], uids: Sequence[str] = ()
) -> None:
    """Raises UsageError for a name in `remove` of no living pod, or of one of another group.

    Raises ReplacedError for a pod that does not have its UID of `uids`.
    """
    living = {pod.name: pod for pod in pods if pod.ended_s is None}
    for name, uid in zip(remove, uids or [""] * len(remove), strict=True):
        pod = living.get(name)
        if pod is None:
            names = sorted(pod.name for pod in living.values() if pod.group == group)
            raise UsageError(
                f"There is no pod {one_line(name)!r} in group {group}.",
                f"Pods: {', '.join(names[:8]) or 'none'}.",
                "cockpit pods lists them.",
            )
        if pod.group != group:
            raise UsageError(f"Pod {name} is of group {pod.group}, not of {group}.")
        if uid and pod.uid != uid:
            raise ReplacedError("Pod", name)


def require_bounds(group: str, replicas: int | None, low: int, high: int) -> None:
    """Raises UsageError for numbers that no group can have."""
    for what, count in (("replicas", replicas), ("min", low), ("max", high)):
        if count is not None and count < 0:
            raise UsageError(f"{what} of group {group} cannot be {count}.", "It is 0 or more.")
    if low > high:
        raise UsageError(
            f"min of group {group} cannot be above its max.",
            f"min {low}, max {high}.",
            "Give --min and --max together.",
        )


def clamped(wanted: int, low: int, high: int) -> tuple[int, str]:
    """Return the number clamped to the bounds, and a warning if it differs."""
    if wanted > high:
        return high, f"{wanted} is above the group's max of {high}: limited to {high}."
    if wanted < low:
        return low, f"{wanted} is below the group's min of {low}: limited to {low}."
    return wanted, ""


def autoscaler_effect(group: str, before: int, after: int, idle_s: int | None = None) -> str:
    """What Ray's autoscaler (recorded with its version 2) does after a change, if anything.

    `idle_s` is the time after which it removes an idle worker, if known.
    """
    if after > before:
        idle = "" if idle_s is None else f" for {in_seconds(idle_s)}"
        return (
            f"Ray's autoscaler removes workers that are idle{idle}; to keep {after}, set the "
            f"group's min to {after}: cockpit scale {group} --min {after}."
        )
    if after < before:
        return (
            "Ray's autoscaler keeps busy workers until they are idle. To remove certain pods now: "
            f"cockpit scale {group} N --remove POD."
        )
    return ""


def wanted_replicas(text: str, group: WorkerGroup) -> int:
    """Parse `3`, or `+1` and `-1` relative to the current number. Raises UsageError."""
    try:
        number = int(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a number of pods.", todo="Give 3, +1 or -1.") from None
    return max(0, group.desired // group.hosts + number if text[0] in "+-" else number)


def unit(count: int, group: WorkerGroup) -> str:
    """`1 pod`, `3 pods`; `2 replicas of 4 pods` if a replica has several pods."""
    if group.hosts == 1:
        return plural(count, "pod")
    return f"{plural(count, 'replica')} of {group.hosts} pods"
