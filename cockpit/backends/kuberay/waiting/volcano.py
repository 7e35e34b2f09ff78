"""Parse Volcano's PodGroups and Queues, and compute what a PodGroup waits for. Pure.

As in scheduling.volcano.sh/v1beta1 of volcano-sh/apis. KubeRay makes one PodGroup for a RayCluster
or a RayJob, with all of its pods as `minMember`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cockpit.backends.kuberay.api.fields import items, mapping, quantity, seconds, text, whole
from cockpit.model.waiting import QueueEntry, QueueState, QuotaUse

GROUP = "scheduling.volcano.sh"
QUEUE_LABEL = "volcano.sh/queue-name"
SCHEDULER_LABEL = "ray.io/scheduler-name"
"""With the value `volcano` it makes KubeRay create a PodGroup, where its operator allows several
schedulers."""
SCHEDULER = "volcano"
DEFAULT = "default"
"""The queue of a PodGroup that names none."""
_STATES = {
    "": QueueState.PENDING,
    "Pending": QueueState.PENDING,
    "Completed": QueueState.FINISHED,
}
"""By phase; `Inqueue`, `Running` and `Unknown` are admitted."""


class PodGroup(Struct, frozen=True):
    entry: QueueEntry
    asked: dict[str, float]


class Queue(Struct, frozen=True):
    """`capability` is the limit of each resource; one that is missing has none."""

    name: str
    problem: str = ""
    capability: dict[str, float] = {}
    allocated: dict[str, float] = {}


def pod_group(raw: Any) -> PodGroup | None:
    """None for a PodGroup without an owner."""
    meta, spec, status = mapping(raw, "metadata"), mapping(raw, "spec"), mapping(raw, "status")
    owner = next(iter(items(meta, "ownerReferences")), None)
    if owner is None:
        return None
    phase = text(status, "phase")
    state = _STATES.get(phase, QueueState.ADMITTED)
    asked = {str(name): quantity(value) for name, value in mapping(spec, "minResources").items()}
    return PodGroup(
        QueueEntry(
            manager="volcano",
            workload=text(meta, "name"),
            owner_kind=text(owner, "kind"),
            owner=text(owner, "name"),
            queue=text(spec, "queue") or DEFAULT,
            state=state,
            created_s=seconds(meta.get("creationTimestamp")),
            message=_unschedulable(status),
            pods=whole(spec, "minMember"),
            running=whole(status, "running"),
        ),
        asked,
    )


def _unschedulable(status: Any) -> str:
    """Why its pods cannot be placed. The scheduler never removes this condition: when it has placed
    them, it sets Scheduled beside it.
    """
    newest: Any = max(
        items(status, "conditions"),
        key=lambda each: (
            seconds(each.get("lastTransitionTime")),
            text(each, "type") == "Scheduled",
        ),
        default={},
    )
    holds = text(newest, "type") == "Unschedulable" and text(newest, "status") == "True"
    return text(newest, "message", 600) if holds else ""


def queue(raw: Any) -> Queue:
    spec, status = mapping(raw, "spec"), mapping(raw, "status")
    name, state = text(mapping(raw, "metadata"), "name"), text(status, "state")
    return Queue(
        name=name,
        problem="" if state in ("", "Open") else f"queue {name} is {state.lower()}",
        capability=_amounts(mapping(spec, "capability")),
        allocated=_amounts(mapping(status, "allocated")),
    )


def entries(
    groups: Iterable[PodGroup], queues: Mapping[str, Queue] | None
) -> tuple[QueueEntry, ...]:
    """All PodGroups with their queue's state; None for queues that may not be listed."""
    listed = list(groups)
    waiting = sorted(
        (each.entry for each in listed if each.entry.state is QueueState.PENDING),
        key=lambda entry: (entry.created_s, entry.workload),
    )
    return tuple(_entry(each, queues, waiting) for each in listed)


def _entry(
    group: PodGroup, queues: Mapping[str, Queue] | None, waiting: Iterable[QueueEntry]
) -> QueueEntry:
    entry = group.entry
    found = (queues or {}).get(entry.queue)
    if queues is not None and found is None:
        entry = replace(entry, queue_problem=f"there is no queue {entry.queue}")
    elif found is not None and entry.state is QueueState.PENDING:
        entry = replace(entry, queue_problem=found.problem)
    if entry.state is QueueState.PENDING:
        beside = [each.workload for each in waiting if each.queue == entry.queue]
        entry = replace(entry, position=beside.index(entry.workload) + 1, waiting=len(beside))
    if found is None:
        return entry
    uses = [
        QuotaUse(
            name,
            used=found.allocated.get(name, 0.0),
            nominal=found.capability[name],
            room=max(0.0, found.capability[name] - found.allocated.get(name, 0.0)),
            most=found.capability[name],
            asked=amount,
        )
        for name, amount in group.asked.items()
        if name in found.capability
    ]
    uses.sort(key=lambda use: (not use.is_short, not use.resource.endswith("/gpu"), use.resource))
    return replace(entry, quota=tuple(uses))


def _amounts(raw: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): quantity(value) for name, value in raw.items()}
