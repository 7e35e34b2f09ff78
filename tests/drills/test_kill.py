from __future__ import annotations

import json
from pathlib import Path

import pytest

from cockpit.actions import audit
from cockpit.actions.cluster import ClusterActions
from cockpit.drills.plan.kill import plan_kill
from cockpit.model.error import CockpitError, UsageError
from cockpit.model.event import JobsListed, MetricsReported
from cockpit.model.run import Checkpoint, Job, JobStatus, RunState
from tests.events import (
    HEAD,
    ONE,
    REF,
    RUN,
    TWO,
    before_the_kill,
    reduced,
    run_seen,
    the_recovery,
    tick,
)
from tests.simulated_backend import ScriptedBackend


def test_a_plan_names_the_pod_the_ranks_and_what_will_happen() -> None:
    plan = plan_kill(reduced(before_the_kill()), TWO.name, 0.0)
    said = " ".join(plan.lines)
    assert plan.ranks == (1,)
    assert TWO.name in said
    assert "SIGKILL now" in said
    assert "rank 1 of 2 of run demo" in said
    assert "attempt 1 ends near step 50" in said


@pytest.mark.parametrize("target", ["1", "rank:1", "rank-1", TWO.name])
def test_a_rank_means_the_pod_that_it_runs_on(target: str) -> None:
    assert plan_kill(reduced(before_the_kill()), target, 0.0).pod == TWO


def test_a_kill_of_the_head_says_that_every_run_ends() -> None:
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
    with pytest.raises(UsageError, match="no living rank 7"):
        plan_kill(store, "7", 0.0)


def test_without_a_checkpoint_the_next_attempt_starts_from_the_beginning() -> None:
    events = before_the_kill()
    [_, said] = plan_kill(reduced(events), "1", 0.0).lines
    assert said.endswith(
        "and the next one starts from the beginning: the run has told of no checkpoint."
    )
    saved = MetricsReported(
        at_s=99.0,
        source="telemetry",
        run_id=RUN,
        attempt=1,
        metrics={},
        checkpoint=Checkpoint(50, "c"),
    )
    [_, said] = plan_kill(reduced([*events, saved]), "1", 0.0).lines
    assert said.endswith("and resumes from its last checkpoint.")


def test_a_run_that_began_from_a_checkpoint_resumes_from_it() -> None:
    events = [*before_the_kill()[:-2], tick(1, 95.0, 41, 60)]
    [_, said] = plan_kill(reduced(events), "1", 0.0).lines
    assert said.endswith("and resumes from its last checkpoint.")


def test_a_dead_pod_cannot_be_killed_again() -> None:
    with pytest.raises(CockpitError, match="not running"):
        plan_kill(reduced([*before_the_kill(), *the_recovery()[:2]]), TWO.name, 0.0)


async def test_a_kill_deletes_once_and_leaves_an_audit_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    backend = ScriptedBackend(ref=REF)
    plan = plan_kill(reduced(before_the_kill()), TWO.name, 5.0)
    drill = await ClusterActions(backend, lambda: 123.0).kill(plan)
    assert backend.asked[0] == ("delete_pod", TWO.name, "5")
    assert (drill.fault, drill.injected_s, drill.run_id) == ("pod-delete", 123.0, RUN)
    line = json.loads(audit.path().read_text())
    assert (line["target"], line["cluster"]) == (TWO.name, "local:t")
    assert audit.path().stat().st_mode & 0o777 == 0o600
