from __future__ import annotations

import pytest
from msgspec.structs import replace

from cockpit.drills.faults.fault import Victims
from cockpit.drills.plan.warnings import max_failures, warnings
from cockpit.model.cluster import Node, WorkerGroup
from cockpit.model.event import (
    AttemptEnded,
    Event,
    GroupsListed,
    JobsListed,
    MetricsReported,
    NodesListed,
)
from cockpit.model.run import Checkpoint, Job, JobStatus, RunState
from cockpit.store.store import Store
from tests.events import HEAD, ONE, RUN, TWO, before_the_kill, reduced, run_seen, started

HIT = (Victims(pods=(TWO,), run_id=RUN),)
GROUP = WorkerGroup("workers", desired=2, ready=2, min=1, max=4)
SAVED = MetricsReported(
    at_s=99.0, source="telemetry", run_id=RUN, attempt=1, checkpoint=Checkpoint(40, "/c/40")
)


def well() -> list[Event]:
    """A run with nothing to warn of."""
    reported = replace(run_seen(90.0, RunState.RUNNING), max_failures=3, max_preemption_failures=-1)
    groups = GroupsListed(at_s=1.0, source="backend", groups=(GROUP,))
    return [*before_the_kill(), reported, SAVED, groups]


def job(entrypoint: str) -> Job:
    return Job("job-1", entrypoint, JobStatus.RUNNING, driver_node_id="n-head")


def with_job(entrypoint: str) -> Store:
    store = reduced(before_the_kill())
    store.apply(JobsListed(at_s=99.0, source="ray", jobs=(job(entrypoint),)))
    store.runs[RUN].submission_id = "job-1"
    return store


def test_a_run_that_will_come_back_needs_no_warning() -> None:
    assert warnings(reduced(well()), HIT) == ()


def test_without_a_run_pods_alone_are_timed() -> None:
    assert warnings(Store(), (Victims(pods=(TWO,)),)) == (
        "no run is active: only the pods are measured",
    )


@pytest.mark.parametrize(
    ("entrypoint", "expected"),
    [
        ("python -m training.jobs.checkpointed --max-failures=0 --epochs=5", 0),
        ("python train.py --max_failures 2", 2),
        ("python train.py max_failures=-1", -1),
        ("python train.py --no-max-failures=7", None),
        ("python train.py", None),
    ],
)
def test_command_line_gives_what_the_run_does_not_report(
    entrypoint: str, expected: int | None
) -> None:
    store = with_job(entrypoint)
    assert max_failures(store, store.runs[RUN]) == expected
    store.runs[RUN].max_failures = 4
    assert max_failures(store, store.runs[RUN]) == 4


def test_a_run_that_would_end_is_warned_of() -> None:
    store = reduced(well())
    store.runs[RUN].max_failures = 0
    assert warnings(store, HIT) == ("run demo has max_failures=0: the death of a rank ends it",)
    store.runs[RUN].max_failures = None
    assert "Ray's default is never" in warnings(store, HIT)[0]


def test_restarts_that_are_used_up_are_warned_of_until_another_driver_counts_again() -> None:
    def ended(attempt: int, reason: str, budget: str) -> AttemptEnded:
        return AttemptEnded(
            at_s=100.0 + attempt,
            source="telemetry",
            run_id=RUN,
            attempt=attempt,
            reason=reason,
            budget=budget,
        )

    store = reduced([*well(), ended(1, "x", "max_failures"), ended(2, "y", "max_failures")])
    store.runs[RUN].max_failures = 2
    assert "has used up its max_failures=2" in warnings(store, HIT)[0]
    store.apply(ended(3, "its driver went away", ""))
    assert warnings(store, HIT) == ()
    store.runs[RUN].max_preemption_failures = 0
    assert "no max_preemption_failures left" in warnings(store, HIT)[0]


def test_a_run_without_a_checkpoint_would_lose_everything() -> None:
    store = reduced([event for event in well() if event is not SAVED])
    assert warnings(store, HIT) == (
        "run demo has no checkpoint yet: all of its 50 steps would be lost",
    )


def test_a_fault_in_the_middle_of_a_recovery_is_warned_of() -> None:
    store = reduced([*well(), run_seen(106.0, RunState.RESTARTING)])
    assert warnings(store, HIT) == (
        "run demo is RESTARTING: it has not recovered from an earlier fault",
    )
    store = reduced([*well(), run_seen(106.0, RunState.RESTARTING), started(114.0, 2, ONE, TWO)])
    store.apply(run_seen(114.0, RunState.RUNNING))
    assert warnings(store, HIT) == ()


def test_the_bounds_of_the_pods_groups_are_reported() -> None:
    store = reduced(well())
    store.groups = {"workers": replace(GROUP, max=2, min=2, autoscaled=True)}
    assert [line.partition(":")[0] for line in warnings(store, HIT)] == [
        "group workers is autoscaled",
        "group workers is at its max of 2",
        "group workers is at its min of 2",
    ]


def test_the_pod_of_the_driver_is_named() -> None:
    store = with_job("python train.py --max-failures=3")
    node = Node("n-head", HEAD.ip, "h", True, True)
    store.apply(NodesListed(at_s=99.0, source="ray", nodes=(node,)))
    assert (
        "the driver of run demo is on t-head-a"
        in warnings(store, (Victims(pods=(HEAD,), run_id=RUN),))[0]
    )
    assert not any("driver" in line for line in warnings(store, HIT))
