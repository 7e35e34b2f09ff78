"""The policy of the guard: which action, and why not another."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.config import file
from cockpit.guard.policy import (
    HOUR_S,
    RETRY_S,
    TRIES,
    Action,
    Decision,
    Memory,
    Policy,
    Target,
    Trigger,
    Trouble,
    decide,
)
from cockpit.guard.settings import parse
from cockpit.insight.hang.types import Confidence
from cockpit.model.cluster import ClusterPattern, ClusterRef
from cockpit.model.error import UsageError

TARGET = Target(1, 101, "t-workers-2", "uid-2", "node-a", "uid-a")
HANG = Trouble(
    Trigger.HANG, "r/hang/1", "r", "demo", 1, "Rank 1 is stuck.", Confidence.HIGH, (TARGET,)
)
FAILED = replace(HANG, trigger=Trigger.REPEATED_FAILURE, key="r/failures/node-a", job_id="job-1")
RESTART = Policy(hang=Action.RESTART)
PROD = ClusterRef("kuberay", "trainer", "ml", "prod")


def decided(policy: Policy, trouble: Trouble = HANG, memory: Memory | None = None) -> Decision:
    found = decide(policy, trouble, memory or Memory(), 100.0)
    assert found is not None
    return found


def test_default_is_to_observe() -> None:
    assert decided(Policy()).action is Action.OBSERVE
    assert decided(Policy(), FAILED).action is Action.OBSERVE
    assert not Policy().changes


def test_hang_is_acted_on_once() -> None:
    found = decided(RESTART)
    assert (found.action, found.is_dry) == (Action.RESTART, False)
    memory = Memory().decided(found).acted_on(found, 100.0)
    assert decide(RESTART, HANG, memory, 101.0) is None
    again = replace(HANG, key="r/hang/2", attempt=2)
    assert decided(RESTART, again, memory).action is Action.RESTART


@pytest.mark.parametrize(
    ("policy", "confidence", "acts"),
    [
        (RESTART, Confidence.HIGH, True),
        (RESTART, Confidence.MEDIUM, False),
        (RESTART, Confidence.LOW, False),
        (replace(RESTART, confidence=Confidence.MEDIUM), Confidence.MEDIUM, True),
        (replace(RESTART, confidence=Confidence.MEDIUM), Confidence.LOW, False),
    ],
)
def test_lower_confidence_never_acts(policy: Policy, confidence: Confidence, acts: bool) -> None:
    found = decided(policy, replace(HANG, confidence=confidence))
    assert (found.action is Action.RESTART) == acts
    assert acts or f"confidence is {confidence.value}" in found.reason


def test_report_is_repeated_only_after_the_hang_is_over() -> None:
    low = replace(HANG, confidence=Confidence.LOW)
    memory = Memory().decided(decided(RESTART, low))
    assert decide(RESTART, low, memory, 101.0) is None
    assert decided(RESTART, memory=memory).action is Action.RESTART, "the confidence has risen"
    assert decide(RESTART, low, memory.present({HANG.key}), 101.0) is None
    assert decide(RESTART, low, memory.present(()), 101.0) is not None


def test_budget_counts_the_changes_of_the_last_hour() -> None:
    memory = Memory(changes_s=(50.0, 60.0, 70.0))
    found = decided(RESTART, memory=memory)
    assert found.action is Action.OBSERVE
    assert found.reason == "the budget of 3 changes per hour is used up"
    later = decide(RESTART, HANG, memory, 55.0 + HOUR_S)
    assert later is not None
    assert later.action is Action.RESTART
    capture = Policy(hang=Action.CAPTURE)
    assert decided(capture, memory=memory).action is Action.CAPTURE, "it changes nothing"


def test_act_that_failed_is_tried_again_later_and_then_given_up() -> None:
    memory, now_s = Memory(), 100.0
    for _ in range(TRIES):
        found = decide(RESTART, HANG, memory, now_s)
        assert found is not None
        memory = memory.decided(found).failed_on(found, now_s, may_have_changed=False)
        assert decide(RESTART, HANG, memory, now_s + RETRY_S / 2) is None
        now_s += RETRY_S
    assert decide(RESTART, HANG, memory, now_s) is None
    assert not memory.changes_s, "a failed act costs no budget"


def test_act_that_failed_and_may_have_changed_the_cluster_costs_budget() -> None:
    found = decided(RESTART)
    memory = Memory(changes_s=(100.0 - HOUR_S,))
    memory = memory.decided(found).failed_on(found, 100.0, may_have_changed=True)
    assert memory.changes_s == (100.0,)
    other = replace(HANG, key="r/hang/2", attempt=2)
    assert decided(replace(RESTART, budget=1), other, memory).action is Action.OBSERVE


def test_dry_run_reports_the_change_once() -> None:
    dry = replace(RESTART, dry_run=True)
    found = decided(dry)
    assert (found.action, found.is_dry) == (Action.RESTART, True)
    assert decide(dry, HANG, Memory().decided(found), 101.0) is None
    assert not dry.changes


@pytest.mark.parametrize(
    ("action", "trouble", "reason"),
    [
        (Action.RESTART, replace(HANG, targets=()), "no process of the cause is known"),
        (Action.RESTART, replace(HANG, targets=(Target(1, 101),)), "the pod of rank 1"),
        (Action.RESTART, replace(HANG, no_restart="run demo has max_failures=0"), "max_failures=0"),
        (Action.REPLACE, replace(HANG, targets=(Target(1, 1, "pod"),)), "the pod has no UID"),
        (Action.REPLACE, replace(FAILED, on_pod=2), "2 failures on pod t-workers-2, 3 are needed"),
        (Action.REPLACE, replace(HANG, no_culprit="no single rank"), "no single rank"),
        (Action.RESTART, replace(HANG, hangs_again="attempt 1 hung"), "attempt 1 hung"),
        (Action.REPLACE, replace(HANG, hangs_again="attempt 1 hung"), "attempt 1 hung"),
        (Action.CORDON, replace(FAILED, on_node=2), "2 failures on node node-a, 3 are needed"),
        (Action.CORDON, replace(FAILED, targets=(Target(1, 1, "pod", "u"),)), "no Kubernetes node"),
        (Action.STOP, FAILED, "the cause is not known"),
        (Action.STOP, replace(FAILED, is_fixed_by_restart=True), "a restart may fix the cause"),
        (Action.STOP, replace(FAILED, is_fixed_by_restart=False, job_id=""), "the job of the run"),
    ],
)
def test_missing_condition_is_the_reason_to_observe(
    action: Action, trouble: Trouble, reason: str
) -> None:
    found = decided(Policy(hang=action, repeated_failure=action), trouble)
    assert found.action is Action.OBSERVE
    assert reason in found.reason


@pytest.mark.parametrize(
    ("action", "trouble"),
    [
        (Action.REPLACE, replace(FAILED, on_pod=3)),
        (Action.CORDON, replace(FAILED, on_node=3)),
        (Action.STOP, replace(FAILED, is_fixed_by_restart=False)),
    ],
)
def test_repeated_failure_is_acted_on(action: Action, trouble: Trouble) -> None:
    assert decided(Policy(repeated_failure=action), trouble).action is action


def test_read_only_mode_and_protected_clusters_are_observed() -> None:
    protected = (ClusterPattern(context="prod"),)
    for policy in (
        RESTART.on(PROD, (), read_only=True),
        RESTART.on(PROD, protected, read_only=False),
        replace(RESTART, protected=True).on(PROD, protected, read_only=True),
    ):
        assert not policy.changes
        assert decided(policy).action is Action.OBSERVE
        assert policy.lines[-1].startswith("It only observes: ")
    for policy in (
        replace(RESTART, protected=True).on(PROD, protected, read_only=False),
        RESTART.on(replace(PROD, context="lab"), protected, read_only=False),
    ):
        assert policy.changes
        assert decided(policy).action is Action.RESTART


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        ({"hang": "cordon"}, "hang is not understood: 'cordon'"),
        ({"hang": 3}, "hang is not understood: 3"),
        ({"repeated_failure": "restart"}, "repeated_failure"),
        ({"budget": 0}, "budget is not understood: 0"),
        ({"failures": True}, "failures is not understood: True"),
        ({"confidence": "low"}, "confidence is not understood: 'low'"),
        ({"dry_run": "yes"}, "dry_run"),
        ({"on_hang": "restart"}, "on_hang"),
    ],
)
def test_setting_that_is_not_understood_is_an_error(table: dict[str, Any], wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong):
        parse(table)


def test_profile_beats_the_table_of_all_profiles() -> None:
    where = file.path()
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(
        '[guard]\nhang = "restart"\nbudget = 5\n'
        '[profiles.prod]\ncontext = "prod"\n[profiles.prod.guard]\nhang = "capture"\n'
    )
    configured = file.read()
    assert parse(configured.named("").guard) == Policy(hang=Action.RESTART, budget=5)
    assert parse(configured.named("prod").guard) == Policy(hang=Action.CAPTURE, budget=5)
