"""The job fault_tolerant on a real Ray: one rank is killed, and only that one is replaced."""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.lanes import is_again
from tests.training.cluster import Cluster, Outcome, bodies, drive
from training.checkpoint.manifest import check
from training.telemetry.names import CALLBACK
from training.telemetry.wire import (
    AttemptEnd,
    AttemptStart,
    Notice,
    Quorum,
    RanksReplaced,
    Record,
    Report,
    Run,
    Steps,
    Tick,
)

pytestmark = [pytest.mark.slow, pytest.mark.ray]

RECOVERY = "training.recovery.callback.RecoveryCallback"
STOP_S = 5.0
"""How long the death of a rank may stop the others on a machine that runs other tests. The promised
2 s are measured by `tests.bench.fault_tolerant`, on an idle one."""
STEP_S = 0.1
EPOCHS = 30
"""Long enough for the killed rank to come back before the end, on a busy machine."""
EPOCH_STEPS = 30


class Kill:
    """Kills rank 0, and notes when; rank 0 evaluates the model and writes the checkpoints.

    Early in an epoch, when the report of the one before has been read: it would be lost with the
    rank.
    """

    def __init__(self) -> None:
        self.at_s = 0.0

    def __call__(self, records: list[Record]) -> None:
        reported = [body.metrics["step"] for body in bodies(records, Report)]
        steps = [one.step for one in of_rank(records, 1)]
        if self.at_s or len(reported) < 2 or not steps:
            return
        if reported[-1] < steps[-1] < reported[-1] + EPOCH_STEPS / 2:
            (start,) = bodies(records, AttemptStart)
            self.at_s = time.time()
            os.kill(start.workers[0].pid, signal.SIGKILL)


def of_rank(records: list[Record], rank: int) -> list[Steps]:
    return [one for tick in bodies(records, Tick) for one in tick.ranks if one.rank == rank]


@pytest.fixture(scope="module")
def outcome(cluster: Cluster) -> Outcome:
    return outcome_of(cluster, "killed")


def outcome_of(cluster: Cluster, name: str) -> Outcome:
    kill = Kill()
    job = ["-m", "training.jobs.fault_tolerant", "--workers", "3", "--run-name", name]
    storage = ["--storage-path", str(cluster.directory / "results")]
    length = ["--epochs", str(EPOCHS), "--min-step-s", str(STEP_S), "--dropout", "0"]
    # Ray leaves similar lines of ranks out otherwise.
    more = {"RAY_TRAIN_CALLBACKS": f"{CALLBACK},{RECOVERY}", "RAY_DEDUP_LOGS": "0"}
    recovering = replace(cluster, environment=cluster.environment | more)
    found = drive(recovering, [*job, *storage, *length], kill)
    assert found.code == 0, found.output[-4000:]
    assert kill.at_s
    return found


def test_run_has_one_attempt_in_which_one_rank_got_a_new_process(outcome: Outcome) -> None:
    (start,) = bodies(outcome.records, AttemptStart)
    (replaced,) = bodies(outcome.records, RanksReplaced)
    (end,) = bodies(outcome.records, AttemptEnd)
    assert end.reason == "finished"
    (worker,) = replaced.workers
    assert worker.rank == 0
    assert worker.pid not in {of.pid for of in start.workers}
    states = [body.state for body in bodies(outcome.records, Run)]
    assert "RESTARTING" not in states
    assert states[-1] == "FINISHED"


def test_loss_of_the_rank_is_noted_with_its_reason(outcome: Outcome) -> None:
    notices = bodies(outcome.records, Notice)
    assert [(notice.rank, notice.reason) for notice in notices] == [(0, "ReplicaLost")]
    assert "the other replicas continue" in notices[0].message


def test_quorum_shrinks_and_the_new_process_heals_from_another_rank(outcome: Outcome) -> None:
    quorums = bodies(outcome.records, Quorum)
    assert [quorum.members for quorum in quorums] == [(0, 1, 2), (1, 2), (0, 1, 2)]
    assert [(heal.rank, heal.source) for heal in quorums[-1].heals] == [(0, 1)]
    assert quorums[1].step < quorums[2].step


@pytest.mark.timed
def test_other_ranks_stop_for_a_few_seconds_at_most(
    outcome: Outcome, cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    if is_again(request.node):
        outcome = outcome_of(cluster, "killed-again")
    for change in ("without replica 0", "with replica 0 again"):
        took = re.findall(rf"is committed {change}, ([0-9.]+) s after", outcome.output)
        assert len(took) >= 2, outcome.output[-4000:]
        assert max(map(float, took)) < STOP_S


def test_no_step_is_done_again(outcome: Outcome) -> None:
    for rank in (1, 2):
        records = of_rank(outcome.records, rank)
        assert all(later.first_step == before.step + 1 for before, later in pairwise(records))
    records = of_rank(outcome.records, 0)
    assert all(later.first_step > before.step for before, later in pairwise(records))


def test_ranks_have_the_same_loss_after_the_new_one_has_healed(outcome: Outcome) -> None:
    newest = {of_rank(outcome.records, rank)[-1].loss for rank in range(3)}
    assert len(newest) == 1


def test_first_member_reports_and_its_checkpoints_are_complete(
    outcome: Outcome, cluster: Cluster
) -> None:
    reports = bodies(outcome.records, Report)
    shrunk = bodies(outcome.records, Quorum)[1]
    assert reports[-1].metrics["step"] == EPOCHS * EPOCH_STEPS
    # Only the first member evaluates an epoch: a report that it was about to make is lost with it.
    at_kill = round(shrunk.step / EPOCH_STEPS, 3)
    reported = [round(report.metrics["epoch"], 3) for report in reports]
    assert [epoch for epoch in reported if epoch != at_kill] == [
        epoch for epoch in range(1, EPOCHS + 1) if epoch != at_kill
    ]
    assert reports[-1].checkpoint
    for path in (cluster.directory / "results" / "killed").glob("checkpoint_*"):
        check(path)
    assert f"accuracy {reports[-1].metrics['accuracy']:.4f}" in outcome.output
