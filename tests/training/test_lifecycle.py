"""The events of a run, in order."""

from __future__ import annotations

import math

import pytest

from training.telemetry.ray_train.lifecycle import Lifecycle, by_rank, mean_over_ranks
from training.telemetry.wire import (
    AttemptEnd,
    AttemptStart,
    Body,
    Phase,
    RankMetrics,
    Report,
    Run,
    Worker,
)


class ListOutbox:
    def __init__(self) -> None:
        self.said: list[Body] = []

    def send(self, t: float, body: Body) -> None:
        assert t == 5.0
        self.said.append(body)


@pytest.fixture
def outbox() -> ListOutbox:
    return ListOutbox()


@pytest.fixture
def lifecycle(outbox: ListOutbox) -> Lifecycle:
    return Lifecycle("ab", "digits", "01000000", "job-1", outbox, wall=lambda: 5.0)


def test_attempts_count_from_one_and_end_once(lifecycle: Lifecycle, outbox: ListOutbox) -> None:
    lifecycle.attempt_ends("before any began")
    assert lifecycle.attempt_starts([Worker(rank=0)]) == 1
    lifecycle.attempt_ends("rank 0: its node died", "max_failures")
    lifecycle.attempt_ends("again")
    assert lifecycle.attempt_starts([Worker(rank=0), Worker(rank=1)]) == 2
    lifecycle.send(5.0, lifecycle.reported([{"loss": 1}, {"loss": 2}]))
    assert outbox.said == [
        AttemptStart(run="ab", attempt=1, workers=(Worker(rank=0),)),
        AttemptEnd(run="ab", attempt=1, reason="rank 0: its node died", budget="max_failures"),
        AttemptStart(run="ab", attempt=2, workers=(Worker(rank=0), Worker(rank=1))),
        Report(
            run="ab",
            attempt=2,
            metrics={"loss": 1.5},
            by_rank=(
                RankMetrics(rank=0, metrics={"loss": 1.0}),
                RankMetrics(rank=1, metrics={"loss": 2.0}),
            ),
        ),
    ]


def test_a_state_is_reported_once_for_many_polls_of_the_controller(
    lifecycle: Lifecycle, outbox: ListOutbox
) -> None:
    for state in ("RUNNING", "RUNNING", "PREEMPTING", "PREEMPTING", "RUNNING"):
        lifecycle.state(state, "why" if state == "PREEMPTING" else "")
    reported = [(body.state, body.message) for body in outbox.said if isinstance(body, Run)]
    assert reported == [("RUNNING", ""), ("PREEMPTING", "why"), ("RUNNING", "")]
    assert isinstance(outbox.said[0], Run)
    assert (outbox.said[0].job, outbox.said[0].submission) == ("01000000", "job-1")


def test_metrics_are_the_mean_over_the_ranks_that_reported_them() -> None:
    found = mean_over_ranks(
        [{"loss": 1.0, "epoch": 2, "name": "x", "done": True}, {"loss": 3.0, "only": 4}]
    )
    assert found == {"loss": 2.0, "epoch": 2.0, "only": 4.0}
    assert math.isnan(mean_over_ranks([{"loss": math.nan}, {"loss": 1.0}])["loss"])


def test_phases_belong_to_the_attempt_that_is_up_or_to_the_one_to_come(
    lifecycle: Lifecycle, outbox: ListOutbox
) -> None:
    def group() -> None:
        lifecycle.state("SCHEDULING")
        lifecycle.phase("placement group")
        lifecycle.phase("actor start")
        lifecycle.attempt_starts([Worker(rank=0)])
        lifecycle.phase("process group")
        lifecycle.phase("first step")
        lifecycle.state("RUNNING")

    lifecycle.state("INITIALIZING")
    group()
    lifecycle.state("PREEMPTING", "rank 0")
    lifecycle.state("PREEMPTING", "ranks 0, 1")
    lifecycle.attempt_ends("preempted")
    lifecycle.state("RESTARTING")
    group()
    lifecycle.attempt_ends("finished")
    lifecycle.state("SHUTTING_DOWN")
    up = ["scheduling", "placement group", "actor start", "process group", "first step"]
    assert [(item.attempt, item.phase) for item in outbox.said if isinstance(item, Phase)] == [
        *((1, phase) for phase in up),
        (1, "preempting"),
        (2, "restarting"),
        *((2, phase) for phase in up),
        (2, "shutting down"),
    ]


def test_a_run_that_another_driver_began_continues_counting(outbox: ListOutbox) -> None:
    second = Lifecycle("ab", "digits", "02000000", "job-2", outbox, lambda: 5.0, attempts=3)
    second.cut_off(3)
    second.phase("scheduling")
    assert second.attempt_starts([Worker(rank=0)]) == 4
    assert outbox.said[:2] == [
        AttemptEnd(run="ab", attempt=3, reason="its driver went away"),
        Phase(run="ab", attempt=4, phase="scheduling"),
    ]


def test_a_large_world_reports_the_most_informative_ranks() -> None:
    metrics: list[dict[str, object]] = [{"loss": 1.0, "speed": rank} for rank in range(1000)]
    metrics[500]["loss"] = 9.0
    metrics[600]["loss"] = math.nan
    metrics[700] = {"name": "says no number"}
    few = by_rank(metrics)
    assert len(few) == 16
    ranks = [item.rank for item in few]
    assert ranks == sorted(ranks)
    assert {500, 600, 999} <= set(ranks)
    assert len(by_rank(metrics[:64])) == 64


def test_while_ranks_are_preempted_reports_are_not_reported_by_rank(lifecycle: Lifecycle) -> None:
    lifecycle.attempt_starts([Worker(rank=0), Worker(rank=1)])
    assert lifecycle.reported([{"loss": 3.0}]) == Report(run="ab", attempt=1, metrics={"loss": 3.0})
