"""What a workload waits for, from the objects of Kueue and Volcano."""

from __future__ import annotations

from typing import Any

import pytest

from cockpit.backends.kuberay.waiting import kueue, volcano
from cockpit.backends.kuberay.waiting.watch import entries
from cockpit.model.waiting import QueueEntry, QueueState
from tests.backends.kuberay.queue_objects import (
    ADMITTED,
    GPU,
    PENDING,
    RESERVED,
    cluster_queue,
    condition,
    local_queue,
    pod_group,
    volcano_queue,
    workload,
)


def kueue_entries(
    workloads: list[Any],
    queues: list[Any] | None = None,
    local: list[Any] | None = None,
    reported: dict[str, tuple[int, int]] | None = None,
) -> tuple[QueueEntry, ...]:
    """None: not allowed to list them."""
    objects: dict[str, Any] = {
        "workloads": {str(n): kueue.workload(raw) for n, raw in enumerate(workloads)},
        "localqueues": None
        if local is None
        else {str(n): kueue.local_queue(raw) for n, raw in enumerate(local)},
        "clusterqueues": None
        if queues is None
        else {str(n): kueue.cluster_queue(raw) for n, raw in enumerate(queues)},
    }
    return entries(objects, reported)


def test_pending_workload_with_its_position_and_the_short_resource() -> None:
    first = workload("a", "a", created="2026-01-01T00:00:00Z", conditions=(PENDING,))
    urgent = workload("b", "b", created="2026-01-01T00:05:00Z", priority=10, conditions=(PENDING,))
    mine = workload(created="2026-01-01T00:01:00Z", conditions=(PENDING,))
    *_, entry = kueue_entries([first, urgent, mine], [cluster_queue(pending=3)], [local_queue()])
    assert (entry.owner_kind, entry.owner, entry.cluster_queue) == ("RayJob", "train", "gpus")
    assert (entry.position, entry.waiting, entry.computed) == (3, 3, True)
    assert entry.summary == "queued 3rd in team-a: 4 of 8 GPUs in use"
    use = entry.quota[0]
    assert (use.resource, use.asked, use.room, use.most) == (GPU, 8.0, 4.0, 8.0)


def test_position_from_the_visibility_api_has_priority() -> None:
    mine = workload("mine", conditions=(PENDING,))
    raw = {
        "items": [
            {
                "metadata": {"name": "mine"},
                "positionInClusterQueue": 6,
                "positionInLocalQueue": 1,
            }
        ]
    }
    (entry,) = kueue_entries(
        [mine], [cluster_queue(pending=9)], [local_queue()], kueue.positions(raw)
    )
    assert (entry.position, entry.waiting, entry.computed) == (7, 9, False)


def test_number_that_waits_is_not_smaller_than_the_known_workloads() -> None:
    """Kueue counts in the status of the queue later than it queues."""
    queued = [workload(name, name, conditions=(PENDING,)) for name in ("a", "b")]
    reported = {"a": (1, 1), "b": (2, 2)}
    found = kueue_entries(queued, [cluster_queue(pending=1)], [local_queue()], reported)
    assert [(entry.position, entry.waiting) for entry in found] == [(1, 2), (2, 2)]
    assert not any(entry.computed for entry in found)


@pytest.mark.parametrize(
    ("others", "borrowing", "room", "most"),
    [
        ([], None, 4.0, 8.0),
        ([cluster_queue("b", used=0, nominal=8, cohort="all")], None, 12.0, 16.0),
        ([cluster_queue("b", used=0, nominal=8, cohort="all")], 2, 6.0, 10.0),
        ([cluster_queue("b", used=0, nominal=8, cohort="all", lending=3)], None, 7.0, 11.0),
        ([cluster_queue("b", used=10, nominal=8, cohort="all")], None, 2.0, 16.0),
        ([cluster_queue("b", used=0, nominal=8, cohort="other")], None, 4.0, 8.0),
    ],
    ids=["alone", "cohort", "borrowing limit", "lending limit", "lent out", "another cohort"],
)
def test_room_of_a_queue_with_what_its_cohort_lends(
    others: list[Any], borrowing: int | None, room: float, most: float
) -> None:
    own = cluster_queue(cohort="all", borrowing=borrowing)
    (entry,) = kueue_entries([workload(conditions=(PENDING,))], [own, *others], [local_queue()])
    assert (entry.quota[0].room, entry.quota[0].most) == (room, most)


def test_queue_that_borrows_has_no_room_of_its_own() -> None:
    own = cluster_queue(used=10, nominal=8, cohort="all")
    other = cluster_queue("b", used=5, nominal=8, cohort="all")
    (entry,) = kueue_entries([workload(conditions=(PENDING,))], [own, other], [local_queue()])
    assert entry.quota[0].room == 1.0


@pytest.mark.parametrize(
    ("conditions", "more", "state"),
    [
        ((), {}, QueueState.PENDING),
        ((PENDING,), {}, QueueState.PENDING),
        ((RESERVED,), {}, QueueState.RESERVED),
        ((RESERVED, ADMITTED), {}, QueueState.ADMITTED),
        ((RESERVED, ADMITTED, condition("Evicted", True, "Preempted")), {}, QueueState.EVICTED),
        ((PENDING, condition("Evicted", True, "Preempted")), {}, QueueState.PENDING),
        ((PENDING,), {"active": False}, QueueState.INACTIVE),
        ((condition("Finished", True, "Succeeded"),), {}, QueueState.FINISHED),
    ],
)
def test_state_of_a_workload(
    conditions: tuple[Any, ...], more: dict[str, Any], state: QueueState
) -> None:
    (entry,) = kueue_entries([workload(conditions=conditions, **more)])
    assert entry.state is state


@pytest.mark.parametrize(
    ("local", "queues", "problem"),
    [
        ([], [], "there is no LocalQueue team-a"),
        ([local_queue()], [], "there is no ClusterQueue gpus"),
        (
            [local_queue(stopPolicy="Hold")],
            [cluster_queue()],
            "LocalQueue team-a is stopped (Hold)",
        ),
        (
            [local_queue()],
            [cluster_queue(conditions=(condition("Active", False, "FlavorNotFound", "no a100"),))],
            "ClusterQueue gpus is not active: no a100",
        ),
        ([local_queue()], None, ""),
        (None, None, ""),
    ],
)
def test_queue_that_admits_nothing(
    local: list[Any] | None, queues: list[Any] | None, problem: str
) -> None:
    (entry,) = kueue_entries([workload(conditions=(PENDING,))], queues, local)
    assert entry.queue_problem == problem


def test_newer_version_names_the_cohort_otherwise() -> None:
    raw = cluster_queue(cohortName="all")
    assert kueue.cluster_queue(raw).cohort == "all"


def test_requests_come_from_the_pods_until_kueue_has_computed_them() -> None:
    raw = workload(conditions=(PENDING,))
    del raw["status"]["resourceRequests"]
    raw["spec"]["podSets"][0]["template"]["spec"]["containers"] = [
        {"resources": {"limits": {GPU: "2", "cpu": "4"}, "requests": {"cpu": "500m"}}}
    ]
    found = kueue.workload(raw)
    assert found is not None
    assert found.asked == {GPU: 6.0, "cpu": 1.5, "pods": 3.0}


def test_pod_group_that_waits_for_its_queue() -> None:
    objects: dict[str, Any] = {
        "podgroups": {"a": volcano.pod_group(pod_group())},
        "queues": {"a": volcano.queue(volcano_queue())},
    }
    (entry,) = entries(objects)
    assert (entry.owner, entry.state, entry.pods) == ("demo", QueueState.PENDING, 3)
    assert entry.summary == "queued 1st in team-a: 4 of 8 GPUs in use"


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        ("", QueueState.PENDING),
        ("Pending", QueueState.PENDING),
        ("Inqueue", QueueState.ADMITTED),
        ("Running", QueueState.ADMITTED),
        ("Unknown", QueueState.ADMITTED),
        ("Completed", QueueState.FINISHED),
    ],
)
def test_phase_of_a_pod_group(phase: str, state: QueueState) -> None:
    found = volcano.pod_group(pod_group(phase=phase))
    assert found is not None
    assert found.entry.state is state


@pytest.mark.parametrize(
    ("scheduled_s", "message"), [(None, "3/3 tasks unschedulable"), (-9, None), (0, ""), (9, "")]
)
def test_unschedulable_pod_group_until_it_is_scheduled(
    scheduled_s: int | None, message: str | None
) -> None:
    why = "3/3 tasks unschedulable"
    raw = pod_group(phase="Inqueue", unschedulable=why, scheduled_s=scheduled_s)
    found = volcano.pod_group(raw)
    assert found is not None
    assert found.entry.message == (why if message is None else message)


@pytest.mark.parametrize(
    ("queues", "problem"),
    [
        ([], "there is no queue team-a"),
        ([volcano_queue(state="Closed")], "queue team-a is closed"),
        (None, ""),
    ],
)
def test_volcano_queue_that_admits_nothing(queues: list[Any] | None, problem: str) -> None:
    objects: dict[str, Any] = {
        "podgroups": {"a": volcano.pod_group(pod_group())},
        "queues": None
        if queues is None
        else {str(n): volcano.queue(raw) for n, raw in enumerate(queues)},
    }
    (entry,) = entries(objects)
    assert entry.queue_problem == problem


@pytest.mark.parametrize(
    "parse",
    [kueue.workload, kueue.local_queue, kueue.cluster_queue, volcano.pod_group, volcano.queue],
)
@pytest.mark.parametrize("raw", [{}, {"spec": 7, "status": []}, {"metadata": {"name": None}}])
def test_malformed_object_is_an_empty_one(parse: Any, raw: Any) -> None:
    parse(raw)
