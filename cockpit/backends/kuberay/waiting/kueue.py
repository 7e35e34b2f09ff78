"""Parse Kueue's objects, and compute what a Workload waits for. Pure.

Reads the versions v1beta1 and v1beta2 of kueue.x-k8s.io: they differ in names of a few fields
(`cohort` and `cohortName`, `flavorUsage` and `flavorsUsage`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cockpit.backends.kuberay.api.fields import items, mapping, quantity, seconds, text, whole
from cockpit.model.waiting import AdmissionCheck, QueueEntry, QueueState, QuotaUse

GROUP = "kueue.x-k8s.io"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
VISIBILITY = "visibility.kueue.x-k8s.io"
_MESSAGE = 600
Asked = dict[str, float]
"""The amount by resource."""


class Workload(Struct, frozen=True):
    """A Workload. `asked` is what all of its pods request together."""

    entry: QueueEntry
    asked: Asked


class LocalQueue(Struct, frozen=True):
    name: str
    cluster_queue: str
    problem: str = ""
    pending: int | None = None


class FlavorQuota(Struct, frozen=True):
    """The quota of one resource in one flavor. None: no limit."""

    flavor: str
    resource: str
    nominal: float
    borrowing: float | None = None
    lending: float | None = None
    used: float = 0.0

    @property
    def lent_at_most(self) -> float:
        """Its unused quota that others in the cohort may take."""
        free = max(0.0, self.nominal - self.used)
        return free if self.lending is None else min(free, self.lending)


class ClusterQueue(Struct, frozen=True):
    name: str
    cohort: str = ""
    strict: bool = False
    problem: str = ""
    pending: int | None = None
    quotas: tuple[FlavorQuota, ...] = ()


def workload(raw: Any) -> Workload | None:
    """None for a Workload without an owner."""
    meta, spec, status = mapping(raw, "metadata"), mapping(raw, "spec"), mapping(raw, "status")
    owners = items(meta, "ownerReferences")
    owner = next((each for each in owners if each.get("controller") is True), None)
    owner = owner or next(iter(owners), None)
    if owner is None:
        return None
    pod_sets = items(spec, "podSets")
    conditions = {text(each, "type"): each for each in items(status, "conditions")}
    state = _state(spec, conditions)
    admission = mapping(status, "admission")
    evicted = conditions.get("Evicted", {})
    ready = conditions.get("PodsReady")
    pods = sum(whole(each, "count", 1) for each in pod_sets)
    return Workload(
        QueueEntry(
            manager="kueue",
            workload=text(meta, "name"),
            owner_kind=text(owner, "kind"),
            owner=text(owner, "name"),
            queue=text(spec, "queueName"),
            cluster_queue=text(admission, "clusterQueue"),
            state=state,
            priority=whole(spec, "priority"),
            created_s=seconds(meta.get("creationTimestamp")),
            message=_message(state, conditions),
            eviction=_line(evicted) if text(evicted, "status") == "True" else "",
            checks=tuple(
                AdmissionCheck(
                    text(each, "name"), text(each, "state"), text(each, "message", _MESSAGE)
                )
                for each in items(status, "admissionChecks")
            ),
            pods=pods,
            running=pods if ready is not None and text(ready, "status") == "True" else None,
        ),
        _asked(pod_sets, status, admission),
    )


def local_queue(raw: Any) -> LocalQueue:
    spec, status = mapping(raw, "spec"), mapping(raw, "status")
    name = text(mapping(raw, "metadata"), "name")
    return LocalQueue(
        name=name,
        cluster_queue=text(spec, "clusterQueue"),
        problem=_stopped(f"LocalQueue {name}", spec, status),
        pending=_pending(status),
    )


def cluster_queue(raw: Any) -> ClusterQueue:
    spec, status = mapping(raw, "spec"), mapping(raw, "status")
    name = text(mapping(raw, "metadata"), "name")
    used: dict[tuple[str, str], float] = {}
    # What is reserved counts for admission: workloads that wait for checks have it already.
    for flavor in items(status, "flavorsReservation") or items(status, "flavorsUsage"):
        for each in items(flavor, "resources"):
            used[text(flavor, "name"), text(each, "name")] = quantity(each.get("total"))
    quotas = []
    for group in items(spec, "resourceGroups"):
        for flavor in items(group, "flavors"):
            for each in items(flavor, "resources"):
                key = (text(flavor, "name"), text(each, "name"))
                quotas.append(
                    FlavorQuota(
                        *key,
                        nominal=quantity(each.get("nominalQuota")),
                        borrowing=_limit(each, "borrowingLimit"),
                        lending=_limit(each, "lendingLimit"),
                        used=used.get(key, 0.0),
                    )
                )
    return ClusterQueue(
        name=name,
        cohort=text(spec, "cohortName") or text(spec, "cohort"),
        strict=text(spec, "queueingStrategy") == "StrictFIFO",
        problem=_stopped(f"ClusterQueue {name}", spec, status),
        pending=_pending(status),
        quotas=tuple(quotas),
    )


def positions(raw: Any) -> dict[str, tuple[int, int]]:
    """By Workload: the positions in LocalQueue and ClusterQueue from 1, of PendingWorkloads."""
    return {
        text(mapping(each, "metadata"), "name"): (
            whole(each, "positionInLocalQueue") + 1,
            whole(each, "positionInClusterQueue") + 1,
        )
        for each in items(raw, "items")
    }


def entries(
    workloads: Iterable[Workload],
    local_queues: Mapping[str, LocalQueue] | None,
    cluster_queues: Mapping[str, ClusterQueue] | None,
    reported: Mapping[str, tuple[int, int]] | None = None,
) -> tuple[QueueEntry, ...]:
    """All workloads with their queue's state.

    None for queues that may not be listed. `reported`: positions from Kueue's visibility API.
    """
    placed = [_placed(each, local_queues, cluster_queues) for each in workloads]
    in_order = sorted(
        (each.entry for each in placed if each.entry.state is QueueState.PENDING),
        key=lambda entry: (-entry.priority, entry.created_s, entry.workload),
    )
    return tuple(
        _with_quota(
            _with_position(each.entry, in_order, cluster_queues, reported),
            each.asked,
            cluster_queues,
        )
        for each in placed
    )


def _placed(
    found: Workload,
    local_queues: Mapping[str, LocalQueue] | None,
    cluster_queues: Mapping[str, ClusterQueue] | None,
) -> Workload:
    entry = found.entry
    local = (local_queues or {}).get(entry.queue)
    name = entry.cluster_queue or (local.cluster_queue if local is not None else "")
    queue = (cluster_queues or {}).get(name)
    problem = ""
    if not entry.queue:
        problem = "it has no queue-name label"
    elif local_queues is not None and local is None:
        problem = f"there is no LocalQueue {entry.queue}"
    elif cluster_queues is not None and name and queue is None:
        problem = f"there is no ClusterQueue {name}"
    problem = problem or (local.problem if local else "") or (queue.problem if queue else "")
    entry = replace(
        entry,
        cluster_queue=name,
        cohort=queue.cohort if queue is not None else "",
        strict=queue is not None and queue.strict,
        queue_problem=problem if entry.is_waiting else "",
    )
    return Workload(entry, found.asked)


def _with_position(
    entry: QueueEntry,
    in_order: Sequence[QueueEntry],
    cluster_queues: Mapping[str, ClusterQueue] | None,
    reported: Mapping[str, tuple[int, int]] | None,
) -> QueueEntry:
    if entry.state is not QueueState.PENDING:
        return entry
    queue = (cluster_queues or {}).get(entry.cluster_queue)
    total = queue.pending if queue is not None else None
    beside = [
        each.workload
        for each in in_order
        if (each.cluster_queue or each.queue) == (entry.cluster_queue or entry.queue)
    ]
    if reported and entry.workload in reported:
        in_local, in_cluster = reported[entry.workload]
        place = in_cluster if entry.cluster_queue else in_local
        # Kueue updates the number in the queue's status later than it queues a workload.
        waiting = None if total is None else max(total, place, len(beside))
        return replace(entry, position=place, waiting=waiting, computed=False)
    waiting = max(len(beside), total or 0)
    return replace(entry, position=beside.index(entry.workload) + 1, waiting=waiting)


def _with_quota(
    entry: QueueEntry, asked: Asked, cluster_queues: Mapping[str, ClusterQueue] | None
) -> QueueEntry:
    """Of the flavor with the most room for each resource: Kueue tries one after the other."""
    queue = (cluster_queues or {}).get(entry.cluster_queue)
    if queue is None or cluster_queues is None:
        return entry
    others = [
        each
        for each in cluster_queues.values()
        if queue.cohort and each.cohort == queue.cohort and each is not queue
    ]
    uses = []
    for resource, wanted in asked.items():
        found = [
            _use(quota, others, wanted) for quota in queue.quotas if quota.resource == resource
        ]
        if found:
            uses.append(max(found, key=lambda use: (use.room, use.most)))
        elif queue.quotas and resource != "pods":
            uses.append(QuotaUse(resource, asked=wanted))
    uses.sort(key=lambda use: (not use.is_short, not use.resource.endswith("/gpu"), use.resource))
    return replace(entry, quota=tuple(uses))


def _use(quota: FlavorQuota, others: Iterable[ClusterQueue], asked: float) -> QuotaUse:
    """What a queue may use now, and at most: its own quota, and what its cohort lends."""
    beside = [
        each
        for queue in others
        for each in queue.quotas
        if (each.flavor, each.resource) == (quota.flavor, quota.resource)
    ]
    own = quota.nominal - quota.used
    # Queues that use more than their own quota have borrowed it from this one or from the rest.
    room = own + sum(each.lent_at_most - max(0.0, each.used - each.nominal) for each in beside)
    ever = sum(
        each.nominal if each.lending is None else min(each.nominal, each.lending) for each in beside
    )
    if quota.borrowing is not None:
        room, ever = min(room, own + quota.borrowing), min(ever, quota.borrowing)
    return QuotaUse(
        quota.resource,
        quota.flavor,
        used=quota.used,
        nominal=quota.nominal,
        room=max(0.0, room),
        most=quota.nominal + ever,
        asked=asked,
    )


def _state(spec: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]) -> QueueState:
    def holds(kind: str) -> bool:
        return text(conditions.get(kind, {}), "status") == "True"

    if holds("Finished"):
        return QueueState.FINISHED
    if spec.get("active") is False:
        return QueueState.INACTIVE
    if holds("Evicted") and holds("QuotaReserved"):
        return QueueState.EVICTED
    if holds("Admitted"):
        return QueueState.ADMITTED
    return QueueState.RESERVED if holds("QuotaReserved") else QueueState.PENDING


def _message(state: QueueState, conditions: Mapping[str, Mapping[str, Any]]) -> str:
    """Of the condition that explains the state."""
    kind = {
        QueueState.PENDING: "QuotaReserved",
        QueueState.RESERVED: "Admitted",
        QueueState.EVICTED: "Evicted",
        QueueState.INACTIVE: "Evicted",
        QueueState.ADMITTED: "PodsReady",
        QueueState.FINISHED: "Finished",
    }[state]
    return text(conditions.get(kind, {}), "message", _MESSAGE)


def _line(condition: Mapping[str, Any]) -> str:
    reason, message = text(condition, "reason"), text(condition, "message", _MESSAGE)
    return f"{reason}: {message}" if reason and message else reason or message


def _stopped(name: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    policy = text(spec, "stopPolicy")
    if policy not in ("", "None"):
        return f"{name} is stopped ({policy})"
    for each in items(status, "conditions"):
        if text(each, "type") == "Active" and text(each, "status") == "False":
            message = text(each, "message") or text(each, "reason")
            return f"{name} is not active: {message}" if message else f"{name} is not active"
    return ""


def _pending(status: Mapping[str, Any]) -> int | None:
    return whole(status, "pendingWorkloads") if "pendingWorkloads" in status else None


def _limit(raw: Mapping[str, Any], key: str) -> float | None:
    return None if raw.get(key) is None else quantity(raw[key])


def _asked(
    pod_sets: Sequence[Mapping[str, Any]], status: Mapping[str, Any], admission: Mapping[str, Any]
) -> Asked:
    """As Kueue has computed it, else from the pods' requests."""
    total: Asked = {}
    computed = [
        mapping(each, key)
        for listed, key in (
            (items(admission, "podSetAssignments"), "resourceUsage"),
            (items(status, "resourceRequests"), "resources"),
        )
        for each in listed
        if mapping(each, key)
    ]
    for amounts in computed:
        for name, value in amounts.items():
            total[str(name)] = total.get(str(name), 0.0) + quantity(value)
    if total:
        return total
    for pod_set in pod_sets:
        count = whole(pod_set, "count", 1)
        pod = mapping(mapping(pod_set, "template"), "spec")
        total["pods"] = total.get("pods", 0.0) + count
        for container in items(pod, "containers"):
            resources = mapping(container, "resources")
            # The API server takes a limit without a request for both.
            wanted = {**mapping(resources, "limits"), **mapping(resources, "requests")}
            for name, value in wanted.items():
                total[str(name)] = total.get(str(name), 0.0) + count * quantity(value)
    return total
