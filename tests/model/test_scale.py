from __future__ import annotations

import pytest
from msgspec.structs import replace

from cockpit.model.cluster import WorkerGroup
from cockpit.model.error import UsageError
from cockpit.model.scale import clamped, plan_scale, unit, wanted_replicas

GROUP = WorkerGroup("gpu", desired=2, ready=2, min=1, max=4)
SLICES = WorkerGroup("tpu", desired=8, ready=8, min=4, max=16, hosts=4)


@pytest.mark.parametrize(("text", "wanted"), [("3", 3), ("+1", 3), ("-1", 1), ("-5", 0)])
def test_number_of_replicas_is_absolute_or_relative(text: str, wanted: int) -> None:
    assert wanted_replicas(text, GROUP) == wanted


def test_relative_number_counts_replicas_of_several_hosts() -> None:
    assert wanted_replicas("+1", SLICES) == 3
    assert unit(3, SLICES) == "3 replicas of 4 pods"


def test_plan_counts_replicas_and_names_the_pods_that_are_removed_together() -> None:
    plan = plan_scale(replace(SLICES, hosts=2, desired=4, min=2), 1, remove=("demo-tpu-worker-x1",))
    assert plan.lines[:3] == (
        "Scale group tpu from 2 to 1 replica of 2 pods.",
        "Removed first: demo-tpu-worker-x1.",
        "With each, all 2 pods of its replica are removed.",
    )


@pytest.mark.parametrize("text", ["many", "", "1.5"])
def test_other_text_is_not_a_number_of_pods(text: str) -> None:
    with pytest.raises(UsageError, match="is not a number of pods"):
        wanted_replicas(text, GROUP)


@pytest.mark.parametrize(
    ("wanted", "after", "warning"),
    [
        (3, 3, ""),
        (9, 4, "9 is above the group's max of 4: limited to 4."),
        (0, 1, "0 is below the group's min of 1: limited to 1."),
    ],
)
def test_plan_stays_within_the_bounds_and_reports_it(wanted: int, after: int, warning: str) -> None:
    plan = plan_scale(GROUP, wanted)
    assert (plan.before, plan.after) == (2, after)
    assert plan.lines[0] == f"Scale group gpu from 2 to {unit(after, GROUP)}."
    assert clamped(wanted, 1, 4) == (after, warning)
    assert (warning in plan.lines) == bool(warning)


def test_bounds_of_the_plan_are_replicas_and_new_bounds_apply() -> None:
    plan = plan_scale(SLICES, 6)
    assert (plan.after, plan.low, plan.high) == (4, 1, 4)
    assert plan_scale(SLICES, 6, max_replicas=8).after == 6


def test_plan_without_a_number_lists_the_new_bounds() -> None:
    plan = plan_scale(GROUP, None, min_replicas=2)
    assert (plan.after, plan.lines) == (None, ("Change group gpu, which has 2 pods: min 2.",))


def test_plan_describes_what_the_autoscaler_does() -> None:
    auto = replace(GROUP, autoscaled=True)
    assert "removes workers that are idle" in plan_scale(auto, 3).lines[-1]
    assert "keeps busy workers" in plan_scale(auto, 1).lines[-1]
    for plan in (plan_scale(auto, 3, min_replicas=3), plan_scale(auto, 1, remove=["w-1"])):
        assert plan.lines[-1] == "Ray's autoscaler continues to change this number."
