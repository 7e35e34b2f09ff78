"""The story of a run, in the order in which it is told."""

from __future__ import annotations

import math

import pytest

from training.telemetry.lifecycle import Lifecycle, mean_over_ranks
from training.telemetry.wire import AttemptEnd, AttemptStart, Body, Report, Run, Worker


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
    lifecycle.attempt_ends("rank 0: its node died")
    lifecycle.attempt_ends("again")
    assert lifecycle.attempt_starts([Worker(rank=0), Worker(rank=1)]) == 2
    lifecycle.report([{"loss": 1}], "/c")
    assert outbox.said == [
        AttemptStart(run="ab", attempt=1, workers=(Worker(rank=0),)),
        AttemptEnd(run="ab", attempt=1, reason="rank 0: its node died"),
        AttemptStart(run="ab", attempt=2, workers=(Worker(rank=0), Worker(rank=1))),
        Report(run="ab", attempt=2, metrics={"loss": 1.0}, checkpoint="/c"),
    ]


def test_a_state_is_told_once_however_often_the_controller_looks(
    lifecycle: Lifecycle, outbox: ListOutbox
) -> None:
    for state in ("RUNNING", "RUNNING", "PREEMPTING", "PREEMPTING", "RUNNING"):
        lifecycle.state(state, "why" if state == "PREEMPTING" else "")
    told = [(body.state, body.message) for body in outbox.said if isinstance(body, Run)]
    assert told == [("RUNNING", ""), ("PREEMPTING", "why"), ("RUNNING", "")]
    assert isinstance(outbox.said[0], Run)
    assert (outbox.said[0].job, outbox.said[0].submission) == ("01000000", "job-1")


def test_metrics_are_the_mean_over_the_ranks_that_reported_them() -> None:
    found = mean_over_ranks(
        [{"loss": 1.0, "epoch": 2, "name": "x", "done": True}, {"loss": 3.0, "only": 4}]
    )
    assert found == {"loss": 2.0, "epoch": 2.0, "only": 4.0}
    assert math.isnan(mean_over_ranks([{"loss": math.nan}, {"loss": 1.0}])["loss"])
