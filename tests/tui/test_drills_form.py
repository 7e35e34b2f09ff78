"""The input of a drill: a form's fields, and the arguments of `:drill`."""

from __future__ import annotations

import pytest

from cockpit.drills.plan.plan import FaultSpec, TargetSpec
from cockpit.model.error import UsageError
from cockpit.tui.commands import commands
from cockpit.tui.commands.drill_form import PRESETS, DrillForm, plan, probes, typed
from tests.tui.simulated import digits


def test_only_what_differs_from_the_defaults_is_asked_for() -> None:
    made = plan(DrillForm("pod-delete", {"grace_s": "30"}, target="rank:1", count="2"))
    assert made.faults == (FaultSpec("pod-delete", {}, TargetSpec("rank:1", 2)),)
    assert plan(DrillForm("pod-delete", {"grace_s": "5"})).faults[0].values == {"grace_s": "5"}


def test_targets_and_limits_are_numbers_or_nothing() -> None:
    made = plan(DrillForm("pod-kill", within="45 s", lost="0", seed="7", target=" "))
    assert (made.recover_within_s, made.max_steps_lost, made.seed) == (45.0, 0, 7)
    assert made.faults[0].target.select == "random"
    bare = plan(DrillForm("pod-kill"))
    assert (bare.recover_within_s, bare.max_steps_lost, bare.seed) == (None, None, None)


@pytest.mark.parametrize(
    ("form", "what"),
    [
        (DrillForm("pod-kil"), "There is no fault 'pod-kil'"),
        (DrillForm("pod-kill", {"grace_s": "5"}), "no parameter 'grace_s'"),
        (DrillForm("pod-delete", {"grace_s": "soon"}), "grace_s of pod-delete is 'soon'"),
        (DrillForm("pod-kill", within="soon"), "'soon' is not a number"),
        (DrillForm("pod-kill", within="inf"), "'inf' is not a number"),
        (DrillForm("pod-kill", count="1.5"), "'1.5' is not a whole number"),
        (DrillForm("pod-kill", count="-1"), "'-1' is not a number"),
        (DrillForm("pod-kill", count="0"), "'0' is too small"),
        (DrillForm("pod-kill", hypothesis="luck"), "'luck' is not a probe"),
    ],
)
def test_invalid_drill_form_is_reported(form: DrillForm, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        plan(form)


def test_number_of_targets_has_a_minimum_of_one() -> None:
    with pytest.raises(UsageError) as refused:
        plan(DrillForm("pod-kill", count="0"))
    assert refused.value.why == "Enter the number of targets: 1 or more."


def test_every_preset_can_be_asked() -> None:
    asked = {name: [probe.kind for probe in probes(text)] for name, text in PRESETS.items()}
    assert asked["none"] == []
    assert asked["steady"] == ["replicas-ready", "throughput"]
    assert asked["strict"][-1] == "checkpoint-age"


def test_a_line_reports_the_fault_its_target_and_parameters() -> None:
    line = "pod-delete rank:1 --set grace_s=5 --count=1 --seed 7 --within 45 --lost 3 --probe a>1"
    assert typed(line.split()) == DrillForm(
        "pod-delete", {"grace_s": "5"}, "rank:1", "1", "7", "45", "3", "a>1"
    )


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("pod-kill rank:1 rank:2", "'rank:2' is one argument too many"),
        ("pod-kill --set", "--set needs a value"),
        ("pod-kill --set grace", "'grace' is not KEY=VALUE"),
        ("pod-kill --frob 1", "There is no --frob"),
    ],
)
def test_a_line_that_cannot_be_meant_is_reported(line: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        typed(line.split())


def test_completion_offers_faults_and_their_targets() -> None:
    simulation = digits()
    simulation.advance(60)
    simulation.session.drain()
    store = simulation.session.store
    assert commands.completions("drill rank-k", store) == ["drill rank-kill"]
    assert commands.completions("drill rank-kill ra", store) == [
        "drill rank-kill rank:0",
        "drill rank-kill rank:1",
        "drill rank-kill random",
    ]
    assert commands.completions("drill rank-kill rank:1 --se", store) == []
