"""The verdict of a drill, from its measurement."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cockpit.drills.engine.drill_log import judge
from cockpit.drills.faults.catalog import ENDS_PODS, NAMES
from cockpit.drills.plan.plan import DrillPlan, FaultSpec
from cockpit.model.drill import Drill, Instant, Milestone, Recovery, Verdict

PLAN = DrillPlan("rank-kill", (FaultSpec("rank-kill", {}),))
DRILL = Drill(
    id="d.1",
    fault="rank-kill",
    target="worker-1",
    ranks=(1,),
    grace_s=0.0,
    injected_s=100.0,
    run_id="run",
)


def recovered(*milestones: Milestone, gaps: tuple[str, ...] = ()) -> Recovery:
    instants = tuple(Instant(one, 4.0 + n, "telemetry") for n, one in enumerate(milestones))
    return Recovery(DRILL, first_step_s=4.5, interrupted=True, instants=instants, missing_data=gaps)


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        (
            recovered(Milestone.FIRST_STEP),
            "first new step after 4.5 s; throughput was not back within 5 %",
        ),
        (
            recovered(Milestone.FIRST_STEP, Milestone.THROUGHPUT_BACK),
            "first new step after 4.5 s",
        ),
        (
            recovered(Milestone.FIRST_STEP, gaps=("too few records before the fault",)),
            "first new step after 4.5 s",
        ),
        (
            Recovery(DRILL, interrupted=False),
            "training continued in the same attempt; throughput was not back within 5 %",
        ),
    ],
)
def test_slower_run_after_a_restart_is_not_fully_recovered(measured: Recovery, why: str) -> None:
    assert judge(PLAN, "", "", [measured]) == (Verdict.PASSED, why)


def lost(seconds: float | None) -> Recovery:
    return replace(recovered(Milestone.FIRST_STEP, Milestone.THROUGHPUT_BACK), seconds_lost=seconds)


@pytest.mark.parametrize(
    ("measured", "verdict", "why"),
    [
        (lost(11.0), Verdict.PASSED, "first new step after 4.5 s, 11.0 s lost"),
        (lost(12.5), Verdict.FAILED, "rank-kill of worker-1: 12.5 s lost, limit 12 s"),
        (
            lost(None),
            Verdict.FAILED,
            "rank-kill of worker-1: the run did not catch up, so the time lost is unknown",
        ),
    ],
)
def test_time_lost_until_the_run_has_caught_up_is_limited(
    measured: Recovery, verdict: Verdict, why: str
) -> None:
    plan = replace(PLAN, max_time_lost_s=12.0)
    assert judge(plan, "", "", [measured]) == (verdict, why)


@pytest.mark.parametrize(
    ("fault", "ready_s", "verdict", "why"),
    [
        ("pod-kill", 9.5, Verdict.PASSED, "no run is active; the pods were ready after 9.5 s"),
        ("pod-kill", None, Verdict.FAILED,
         "pod-kill of worker-1: the pod did not become ready again"),
        ("container-kill", None, Verdict.FAILED,
         "container-kill of worker-1: the pod did not become ready again"),
        ("network-delay", None, Verdict.PASSED,
         "no run is active; only the pods were measured"),
    ],
)  # fmt: skip
def test_without_a_run_the_pods_that_the_fault_ended_have_to_be_ready_again(
    fault: str, ready_s: float | None, verdict: Verdict, why: str
) -> None:
    drill = replace(DRILL, run_id="", fault=fault)
    assert judge(PLAN, "", "", [Recovery(drill, pod_ready_s=ready_s)]) == (verdict, why)


def test_every_fault_that_is_said_to_end_pods_is_in_the_catalogue() -> None:
    assert set(NAMES) >= ENDS_PODS
