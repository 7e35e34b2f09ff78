"""The milestones of a recovery compared with independent records, on a real cluster.

The records: what each rank writes to a file, the log of Ray Train's controller, the notices of the
operator. All clocks are those of one machine. Ranks report aggregated records once a second, so
that their times may be off by a second.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import copy

import pytest

from cockpit.actions.drills import DrillActions
from cockpit.backends.local import GroupSpec, LocalBackend
from cockpit.backends.local.files import ClusterFiles, RunFiles
from cockpit.cli.drill import progress as verb
from cockpit.cli.main import main
from cockpit.drills.plan.kill import plan_kill
from cockpit.insight.recovery.measurement import baseline, is_complete, recovery
from cockpit.model.drill import Drill, Milestone, Recovery
from cockpit.model.event import DrillInjected
from cockpit.session import builder
from cockpit.session.session import Session
from cockpit.store.selectors import current_run, pod_of_rank
from cockpit.store.store import Store
from tests.local_cluster import running_cluster

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timed]

NAME = "measured"
SCRIPT = Path(__file__).parents[1] / "training" / "scripts" / "stepping.py"
EXACT_S = 0.5
"""Of reports with the time of the event."""
FOLDED_S = 1.5
M = Milestone


@dataclass(frozen=True)
class Facts:
    """The independent records, in Unix seconds."""

    directory: Path

    def written(self, what: str, since_s: float, until_s: float) -> list[tuple[float, int]]:
        lines = [
            json.loads(line)
            for path in self.directory.glob("rank-*.jsonl")
            for line in path.read_text().splitlines()
            if line.endswith("]")  # a rank may be killed in the middle of one
        ]
        return sorted(
            (t, step) for kind, step, t in lines if kind == what and since_s < t < until_s
        )

    def controller(self, message: str, since_s: float) -> float:
        """The first such line of the controller's own log."""
        found = [
            _unix(record["asctime"])
            for path in _run_directory().glob("*/session_2*/logs/train/*-app-controller-*.log")
            for record in map(json.loads, path.read_text().splitlines())
            if message in record["message"]
        ]
        return min(at_s for at_s in found if at_s > since_s)

    def operator(self, reason: str, since_s: float) -> float:
        lines = ClusterFiles.of(NAME).events.read_text().splitlines()
        notices = [json.loads(line) for line in lines]
        return float(
            min(n["at_s"] for n in notices if n["reason"] == reason and n["at_s"] > since_s)
        )


def _run_directory() -> Path:
    """The directory in which each of the cluster's pods writes."""
    return RunFiles.of(json.loads(ClusterFiles.of(NAME).spec.read_text())["uid"]).directory


def _unix(asctime: str) -> float:
    seconds, _, thousandths = asctime.partition(",")
    return time.mktime(time.strptime(seconds, "%Y-%m-%d %H:%M:%S")) + int(thousandths) / 1000


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Facts]:
    """A cluster of two workers, and a run on it that has checkpoints."""
    own, code = tmp_path_factory.mktemp("facts"), tmp_path_factory.mktemp("code")
    copy(SCRIPT, code)
    with running_cluster(NAME, [GroupSpec("workers", replicas=2, min=0, max=3)]):
        before = Path.cwd()
        os.chdir(code)
        try:
            assert main(["launch", "--", "python", SCRIPT.name, str(own)]) == 0
        finally:
            os.chdir(before)
        yield Facts(own)


@pytest.fixture
def session(facts: Facts) -> Iterator[Session]:
    with builder.session_on(LocalBackend(NAME)) as session:
        assert session.wait(_is_at_pace, 180), session.store.jobs
        yield session


def _is_at_pace(store: Store) -> bool:
    """Its newest attempt has made steps for 10 s, and saved some of them."""
    run = current_run(store)
    attempt = run.attempt if run is not None else None
    if run is None or attempt is None or attempt.first_step_s is None or run.checkpoint_s is None:
        return False
    long_enough = (attempt.last_step_s or 0.0) - attempt.first_step_s > 10.0
    return long_enough and run.checkpoint_s > attempt.first_step_s


def test_the_death_of_a_rank_is_timed_as_it_was(session: Session, facts: Facts) -> None:
    run = current_run(session.store)
    assert run is not None
    assert run.attempt is not None
    rank = run.ranks[1]
    pod = pod_of_rank(session.store, rank)
    assert pod is not None
    assert rank.placement is not None
    before = baseline(session.store, run.id)
    drill = Drill(
        id="drill-1",
        fault="rank-kill",
        target=pod.name,
        ranks=(1,),
        injected_s=session.clock(),
        grace_s=0.0,
        run_id=run.id,
        attempt=run.attempt.number,
        step=run.step or 0,
        pods=(pod.name,),
    )
    os.kill(rank.placement.pid, signal.SIGKILL)
    session.dispatch(DrillInjected(at_s=drill.injected_s, source="user", drill=drill))
    session.wait(lambda store: is_complete(store, drill, before, session.clock()), 200.0)
    measured = recovery(session.store, drill, before)
    _agree(measured, facts)
    assert measured.reached(M.POD_REPLACED) is None
    assert measured.budget == "max_failures"
    assert (measured.ranks_before, measured.ranks_after, measured.restarts) == (2, 2, 1)


@pytest.mark.nightly  # of a rank: test_the_death_of_a_rank_is_timed_as_it_was
def test_the_death_of_a_pod_is_timed_as_it_was(session: Session, facts: Facts) -> None:
    actions = DrillActions(session)
    plan = plan_kill(session.store, "1", 0.0, recover_s=200.0)
    measured = verb.kill(session, actions, plan)
    since_s = measured.drill.injected_s
    for milestone, reason in ((M.POD_REPLACED, "Created"), (M.POD_READY, "Ready")):
        _near(measured, milestone, facts.operator(reason, since_s), EXACT_S)
    symptom_s = measured.reached(M.SYMPTOM)
    assert symptom_s is not None
    assert symptom_s <= facts.operator("Killed", since_s) - since_s + EXACT_S
    _agree(measured, facts)


def _agree(measured: Recovery, facts: Facts) -> None:
    """The milestones of every restart, compared with the records."""
    since_s = measured.drill.injected_s
    ended_s = facts.controller("RUNNING -> RESTARTING", since_s)
    _near(measured, M.ATTEMPT_ENDED, ended_s, EXACT_S)
    (restored_s, resumed_from), *_ = facts.written("restored", since_s, since_s + 300)
    old = facts.written("step", since_s - 5, restored_s)
    new = facts.written("step", restored_s, since_s + 300)

    last = max(step for _, step in old)
    assert measured.last_step is not None
    assert last - 30 <= measured.last_step <= last, "what the dead rank told last may be lost"
    stopped_s = min(at_s for at_s, step in old if step >= measured.last_step)
    _near(measured, M.STOPPED, stopped_s, EXACT_S)

    # The log has one line before the group is made and one when all of it is up.
    started_s = since_s + (measured.reached(M.WORKERS_STARTED) or 0.0)
    asked_s = facts.controller("Attempting to start training worker group", since_s)
    assert asked_s <= started_s
    assert started_s <= facts.controller("Started training worker group", since_s) + EXACT_S
    _near(measured, M.RESTORED, restored_s, EXACT_S)
    _near(measured, M.FIRST_STEP, new[0][0], FOLDED_S)
    assert measured.resumed_step == resumed_from + 1
    caught_up_s = min(at_s for at_s, step in new if step >= measured.last_step)
    _near(measured, M.CAUGHT_UP, caught_up_s, FOLDED_S)
    assert measured.steps_lost == measured.last_step - resumed_from
    assert measured.seconds_lost == pytest.approx(caught_up_s - stopped_s, abs=FOLDED_S)
    assert measured.reached(M.THROUGHPUT_BACK) is not None
    assert measured.continuity is not None
    assert measured.continuity.continuous
    assert measured.interrupted
    assert not [line for line in measured.missing_data if "clock" in line]


def _near(measured: Recovery, milestone: Milestone, fact_s: float, within_s: float) -> None:
    after_s = measured.reached(milestone)
    assert after_s is not None, f"{milestone.value} was not seen: {measured.instants}"
    at_s = measured.drill.injected_s + after_s
    assert at_s == pytest.approx(fact_s, abs=within_s), f"{milestone.value}: {measured.instants}"
