"""Which pods replaced those that a fault ended.

Kubernetes does not report it. Within a worker group, ended pods are matched in order of their ends,
each with the first later pod that is not matched yet.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    removed = [pod for pod in hit if pod.removed_s is not None]
    replaced_by = _matched(store, removed)
    new: list[PodPast] = []
    ready: list[float | None] = []
    for pod in hit:
        if pod.removed_s is None and (left_s := pod.left_s(since_s)) is not None:
            ready.append(pod.ready_s(left_s))
        elif (other := replaced_by.get(pod.name)) is not None:
            new.append(other)
            ready.append(other.ready_s(other.seen_s))
    missing = len(removed) - len(new)
    ready_times = [at_s for at_s in ready if at_s is not None]
    whole = bool(ready) and len(ready_times) == len(ready) and not missing
    return ReplacementPods(
        hit=hit,
        removed_s=min((pod.removed_s for pod in hit if pod.removed_s is not None), default=None),
        replaced_s=max(pod.seen_s for pod in new) if new and not missing else None,
        ready_s=max(ready_times) if whole else None,
        waits=bool(missing) or len(ready_times) < len(ready),
    )


def _matched(store: Store, removed: Sequence[PodPast]) -> dict[str, PodPast]:
    """By the name of an ended pod, its replacement.

    Only pods that drills ended are matched. Pods that were scaled down are last: if at all, they
    are added again at the end of the drill.
    """
    taken = {pod.name: pod for pod in _taken(store)}
    given_back = {pod.name for pod in removed if pod.name not in taken}
    taken |= {pod.name: pod for pod in removed}
    found: dict[str, PodPast] = {}
    for group in {pod.group for pod in removed}:
        free = [pod for pod in store.past.pods.values() if pod.group == group and _lasts(pod)]
        free.sort(key=lambda pod: pod.seen_s)
        of_group = [pod for pod in taken.values() if pod.group == group]
        for lost in sorted(of_group, key=lambda pod: (pod.name in given_back, _went_s(pod))):
            since_s = _went_s(lost)
            other = next((pod for pod in free if pod.seen_s >= since_s and pod is not lost), None)
            if other is not None:
                free.remove(other)
                found[lost.name] = other
    return {pod.name: found[pod.name] for pod in removed if pod.name in found}


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
