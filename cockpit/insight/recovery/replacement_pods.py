"""Which pods replaced those that a fault ended.

Kubernetes does not report it. Within a worker group, ended pods are matched in order of their ends,
each with the first later pod that is not matched yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from cockpit.model.drill import Drill
from cockpit.store.history import PodPast
from cockpit.store.store import Store


class ReplacementPods(Struct, frozen=True):
    """Unix seconds; None: not yet, or not for all of them."""

    hit: tuple[PodPast, ...]
    removed_s: float | None = None
    """The first of them."""
    replaced_s: float | None = None
    ready_s: float | None = None
    """The last of their replacements; of a pod that only restarted, itself again."""
    waits: bool = False
    """One of them is down, or deleted without a replacement."""


def hit_pods(store: Store, drill: Drill) -> list[PodPast]:
    return store.past.lives(drill.pods or (drill.target,))


def pods_back(store: Store, drill: Drill) -> ReplacementPods:
    """The replacement of the pods of a drill."""
    hit = tuple(hit_pods(store, drill))
    since_s = drill.injected_s
    again = {pod.name: _again_s(pod, since_s) for pod in hit}
    removed = [pod for pod in hit if pod.removed_s is not None and again[pod.name] is None]
    replaced_by = _matched(store, removed)
    new: list[PodPast] = []
    ready: list[float | None] = []
    for pod in hit:
        if again[pod.name] is not None:
            ready.append(again[pod.name])
        elif pod.removed_s is None and (left_s := pod.left_s(since_s)) is not None:
            ready.append(pod.ready_s(left_s))
        elif (other := replaced_by.get(pod.name)) is not None:
            new.append(other)
            ready.append(other.ready_s(other.seen_s))
    missing = len(removed) - len(new)
    ready_times = [at_s for at_s in ready if at_s is not None]
    whole = bool(ready) and len(ready_times) == len(ready) and not missing
    return ReplacementPods(
        hit=hit,
        removed_s=min(
            (at for pod in hit if (at := gone_s(pod, since_s)) is not None), default=None
        ),
        replaced_s=max(pod.seen_s for pod in new) if new and not missing else None,
        ready_s=max(ready_times) if whole else None,
        waits=bool(missing) or len(ready_times) < len(ready),
    )


def gone_s(pod: PodPast, since_s: float) -> float | None:
    """When it was removed, from `since_s` on."""
    if pod.removed_s is None:
        return None
    # The time of the first removal is kept, which an earlier fault may have caused.
    return pod.removed_s if pod.removed_s >= since_s else pod.left_s(since_s)


def _again_s(pod: PodPast, since_s: float) -> float | None:
    """When a removed pod was ready under its name again: KubeRay may create a head so."""
    at_s = gone_s(pod, since_s)
    return None if at_s is None else pod.ready_s(at_s)


def _matched(store: Store, removed: Sequence[PodPast]) -> dict[str, PodPast]:
    """By the name of an ended pod, its replacement.

    Only pods that drills ended are matched. Pods that were scaled down are last: if at all, they
    are added again at the end of the drill. Where a drill ended a replacement before it was ready,
    its own replacement counts for both.
    """
    taken = {pod.name: pod for pod in _taken(store)}
    given_back = {pod.name for pod in removed if pod.name not in taken}
    taken |= {pod.name: pod for pod in removed}
    found: dict[str, PodPast] = {}
    for group in {pod.group for pod in removed}:
        free = [
            pod
            for pod in store.past.pods.values()
            if pod.group == group and (_lasts(pod) or pod.name in taken)
        ]
        free.sort(key=lambda pod: pod.seen_s)
        of_group = [pod for pod in taken.values() if pod.group == group]
        for lost in sorted(of_group, key=lambda pod: (pod.name in given_back, _went_s(pod))):
            since_s = _went_s(lost)
            later = (pod for pod in free if pod.seen_s >= since_s and pod.seen_s > lost.seen_s)
            other = next(later, None)
            if other is not None:
                free.remove(other)
                found[lost.name] = other
    last = {pod.name: _last(found, pod) for pod in removed}
    return {name: other for name, other in last.items() if other is not None}


def _last(found: Mapping[str, PodPast], pod: PodPast) -> PodPast | None:
    """Its replacement that lasts. Ends, since each replacement was seen later than its pod."""
    other = found.get(pod.name)
    return other if other is None or _lasts(other) else _last(found, other)


def _lasts(pod: PodPast) -> bool:
    """False for a pod that was removed before it was ready, as with its RayJob's cluster."""
    return pod.removed_s is None or pod.ready_s(pod.seen_s) is not None


def _taken(store: Store) -> list[PodPast]:
    drills = [drill for drill in store.drills if not _scales(drill)]
    return [pod for drill in drills for pod in hit_pods(store, drill) if pod.removed_s is not None]


def _scales(drill: Drill) -> bool:
    """Its pods are removed for good."""
    return drill.fault.startswith("scale")


def _went_s(pod: PodPast) -> float:
    """When it was last ready: one list usually contains its end and its replacement."""
    assert pod.removed_s is not None
    well = [at for at, state in enumerate(pod.states) if state.is_well]
    if well and well[-1] + 1 < len(pod.states):
        return min(pod.removed_s, pod.states[well[-1] + 1].at_s)
    return pod.removed_s
