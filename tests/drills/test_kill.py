from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from cockpit.actions import audit
from cockpit.actions.drills import DrillActions
from cockpit.cli.drill.progress import NOT_MEASURED, kill
from cockpit.drills.plan.kill import plan_kill
from cockpit.model.drill import Verdict
from cockpit.model.error import (
    CockpitError,
    LeaseHeldError,
    NotAllowedError,
    ReplacedError,
    UnreachableError,
    UsageError,
)
from cockpit.model.event import JobsListed, MetricsReported, SourceHealth
from cockpit.model.run import Checkpoint, Job, JobStatus, RunState
from cockpit.recorder.drills import DrillHistory
from cockpit.session.session import Session
from tests.events import (
    HEAD,
    ONE,
    REF,
    RUN,
    TWO,
    before_the_kill,
    pods,
    reduced,
    run_seen,
    the_recovery,
    tick,
)
from tests.simulated_backend import ScriptedBackend


def test_a_plan_names_the_pod_the_ranks_and_what_will_happen() -> None:
    plan = plan_kill(reduced(before_the_kill()), TWO.name, 0.0)
    text = " ".join(plan.lines)
    assert TWO.name in text
    assert "SIGKILL now" in text
    assert "rank 1 of 2 of run demo" in text
    assert "attempt 1 ends near step 50" in text


def test_plan_names_all_pods_and_ranks_of_a_replica_of_several_hosts() -> None:
    one, two = (replace(pod, replica="gpu-x1") for pod in (ONE, TWO))
    plan = plan_kill(reduced([*before_the_kill(), pods(60.0, one, two)]), TWO.name, 0.0)
    assert f"KubeRay then replaces the whole replica, which also includes {ONE.name}." in plan.lines
    assert "They run ranks 0, 1 of 2 of run demo" in " ".join(plan.lines)


@pytest.mark.parametrize("target", ["1", "rank:1", "rank-1", TWO.name])
def test_a_rank_means_the_pod_that_it_runs_on(target: str) -> None:
    assert plan_kill(reduced(before_the_kill()), target, 0.0).pod == TWO


def test_a_rank_is_not_known_while_the_telemetry_has_not_answered() -> None:
    """On a busy machine, a source may be late: the rank may exist."""
    store = reduced([pods(1.0, ONE, TWO)])
    with pytest.raises(UnreachableError, match="pod of rank 1 is not known") as caught:
        plan_kill(store, "1", 0.0)
    assert "did not answer in time" in caught.value.why
    store.apply(SourceHealth(at_s=2.0, source="telemetry", ok=True))
    with pytest.raises(UsageError, match="no pod or rank '1'"):
        plan_kill(store, "1", 0.0)
    with pytest.raises(UsageError, match="no pod or rank 'w-9'"):
        plan_kill(store, "w-9", 0.0)


def test_a_kill_of_the_head_reports_that_every_run_ends() -> None:
    plan = plan_kill(reduced(before_the_kill()), HEAD.name, 30.0)
    assert any("HEAD" in line for line in plan.lines)
    assert "SIGKILL after 30 s" in plan.lines[0]


@pytest.mark.parametrize("target", ["nobody", "7"])
def test_a_target_that_is_not_there_is_answered_with_those_that_are(target: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_kill(reduced(before_the_kill()), target, 0.0)
    assert ONE.name in caught.value.why or "0, 1" in caught.value.why


@pytest.mark.parametrize("target", ["1", "rank:1"])
def test_a_rank_before_the_first_attempt_is_to_be_waited_for(target: str) -> None:
    scheduled = reduced(before_the_kill()[:4])
    going = Job("raysubmit_1", "python train.py", JobStatus.RUNNING, started_s=70.0)
    submitted = reduced(
        [*before_the_kill()[:2], JobsListed(at_s=70.0, source="ray", jobs=(going,))]
    )
    for store, waits in ((scheduled, "Run demo has"), (submitted, "The run of job raysubmit_1")):
        with pytest.raises(UsageError) as caught:
            plan_kill(store, target, 0.0)
        assert caught.value.what == "There is no rank 1 yet."
        assert waits in caught.value.why
        assert caught.value.todo == "Wait for its first attempt: cockpit ranks"


def test_a_job_whose_run_is_over_is_not_one_to_wait_for() -> None:
    going = Job("raysubmit_1", "python train.py", JobStatus.RUNNING, started_s=70.0)
    store = reduced(
        [
            *before_the_kill(),
            JobsListed(at_s=99.0, source="ray", jobs=(going,)),
            run_seen(99.5, RunState.FINISHED),
        ]
    )
    store.runs[RUN].submission_id = going.id
    with pytest.raises(UsageError, match="no living rank 1: run demo has ended") as caught:
        plan_kill(store, "1", 0.0)
    assert "It is FINISHED" in caught.value.why
    assert plan_kill(store, TWO.name, 0.0).pod == TWO


def test_without_a_checkpoint_the_next_attempt_starts_from_the_beginning() -> None:
    events = before_the_kill()
    [_, text] = plan_kill(reduced(events), "1", 0.0).lines
    assert text.endswith(
        "and the next attempt starts from the beginning: the run has reported no checkpoint."
    )
    saved = MetricsReported(
        at_s=99.0,
        source="telemetry",
        run_id=RUN,
        attempt=1,
        metrics={},
        checkpoint=Checkpoint(50, "c"),
    )
    [_, text] = plan_kill(reduced([*events, saved]), "1", 0.0).lines
    assert text.endswith("and the run resumes from its last checkpoint.")


def test_a_run_that_began_from_a_checkpoint_resumes_from_it() -> None:
    events = [*before_the_kill()[:-2], tick(1, 95.0, 41, 60)]
    [_, text] = plan_kill(reduced(events), "1", 0.0).lines
    assert text.endswith("and the run resumes from its last checkpoint.")


def test_a_dead_pod_cannot_be_killed_again() -> None:
    with pytest.raises(CockpitError, match="not running"):
        plan_kill(reduced([*before_the_kill(), *the_recovery()[:2]]), TWO.name, 0.0)


Killing = tuple[Session, ScriptedBackend, DrillActions]


@pytest.fixture
def killing() -> Iterator[Killing]:
    backend = ScriptedBackend(before_the_kill(), REF)
    with Session(backend, clock=lambda: 100.0) as session:
        assert session.wait(lambda store: RUN in store.runs, 5)
        yield session, backend, DrillActions(session)


def test_kill_is_a_drill_with_lease_history_audit_lines_and_notices(killing: Killing) -> None:
    session, backend, actions = killing
    plan = plan_kill(session.store, "1", 0.0)
    assert not plan.drill.hypothesis
    measured = kill(session, actions, plan, wait=False)
    drill = measured.drill
    assert (drill.fault, drill.target, drill.ranks) == ("pod-kill", TWO.name, (1,))
    assert (drill.run_id, drill.attempt, drill.step) == (RUN, 1, 50)

    verbs = [call[0] for call in backend.asked if call[0] != "announce"]
    assert verbs == ["hold", "hold", "delete_pod", "release"], "renewed just before"
    [kept] = DrillHistory().all()[0]
    assert f"{kept.record.id}.1" == drill.id
    assert kept.record.why == NOT_MEASURED
    began, ended = (json.loads(line) for line in audit.path().read_text().splitlines())
    assert {began["action"], ended["action"]} == {"drill pod-kill"}
    assert (ended["before"], ended["cluster"]) == (TWO.name, "local:t")
    session.drain()
    assert [drill.target for drill in session.store.drills] == [TWO.name]
    assert "drill pod-kill" in " ".join(notice.message for notice in session.store.notices)


def test_kill_with_grace_deletes_the_pod_with_its_grace_period(killing: Killing) -> None:
    session, backend, actions = killing
    plan = plan_kill(session.store, TWO.name, 5.0)
    measured = kill(session, actions, plan, wait=False)
    assert (measured.drill.fault, measured.drill.grace_s) == ("pod-delete", 5.0)
    assert ("delete_pod", TWO.name, "5") in backend.asked


@pytest.mark.parametrize(("target", "ranks"), [(HEAD.name, ()), (ONE.name, (0,))])
def test_kill_hits_the_named_pod_and_no_other(
    killing: Killing, target: str, ranks: tuple[int, ...]
) -> None:
    session, _, actions = killing
    plan = plan_kill(session.store, target, 0.0)
    measured = kill(session, actions, plan, wait=False)
    assert (measured.drill.target, measured.drill.ranks) == (target, ranks)


def test_failed_deletion_raises_its_error_and_leaves_a_broken_drill(
    killing: Killing, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _, actions = killing

    async def refuse(*_: object, **__: object) -> None:
        raise NotAllowedError("No.", "you may not delete pods")

    monkeypatch.setattr(ScriptedBackend, "delete_pod", refuse)
    plan = plan_kill(session.store, TWO.name, 0.0)
    with pytest.raises(NotAllowedError, match="you may not delete pods"):
        kill(session, actions, plan)
    [kept] = DrillHistory().all()[0]
    assert kept.record.verdict is Verdict.BROKEN
    line = json.loads(audit.path().read_text().splitlines()[-1])
    assert (line["result"], line["action"]) == ("failed", "drill pod-kill")


def test_kill_is_refused_while_another_drill_holds_the_lease(
    killing: Killing, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, backend, actions = killing

    async def taken(*_: object, **__: object) -> None:
        raise LeaseHeldError("Busy.", "Held.", "Wait.", renewal="", ttl_s=60.0, current=True)

    monkeypatch.setattr(ScriptedBackend, "hold", taken)
    plan = plan_kill(session.store, TWO.name, 0.0)
    with pytest.raises(LeaseHeldError):
        kill(session, actions, plan)
    assert "delete_pod" not in [call[0] for call in backend.asked]


def test_pod_replaced_after_the_plan_was_shown_is_not_killed(killing: Killing) -> None:
    session, backend, actions = killing
    session.dispatch(pods(101.0, HEAD, ONE, replace(TWO, uid="shown")))
    session.drain()
    plan = plan_kill(session.store, TWO.name, 0.0)
    session.dispatch(pods(102.0, HEAD, ONE, replace(TWO, uid="other")))
    session.drain()
    with pytest.raises(ReplacedError):
        kill(session, actions, plan)
    assert "delete_pod" not in [call[0] for call in backend.asked]
