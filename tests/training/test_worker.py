"""A rank's telemetry: it pushes without waiting, and its failures stay its own."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import Any

import pytest

from training import telemetry
from training.telemetry.process import Process
from training.telemetry.wire import Steps
from training.telemetry.worker import RankTelemetry


class ListSink:
    def __init__(self) -> None:
        self.records: list[Steps] = []
        self.is_busy = False
        self.error: Exception | None = None

    def busy(self) -> bool:
        return self.is_busy

    def send(self, record: Steps) -> None:
        if self.error is not None:
            raise self.error
        self.records.append(record)

    def drain(self, timeout_s: float) -> None:
        self.is_busy = False


@pytest.fixture
def sink() -> ListSink:
    return ListSink()


@pytest.fixture
def rank(sink: ListSink, monkeypatch: pytest.MonkeyPatch) -> RankTelemetry:
    rank = RankTelemetry(3, 2, sink)
    monkeypatch.setattr(telemetry, "_rank", rank)
    return rank


def test_a_push_carries_the_steps_and_the_process(rank: RankTelemetry, sink: ListSink) -> None:
    telemetry.resume(step=10)
    telemetry.step(loss=1.0)
    telemetry.step(loss=0.5, samples=4)
    rank.push()
    (record,) = sink.records
    assert (record.rank, record.attempt, record.first_step, record.step) == (3, 2, 11, 12)
    assert record.loss == 0.5
    assert record.memory_bytes is not None
    assert record.memory_bytes > 1 << 20


def test_while_a_push_is_under_way_steps_are_folded_on(rank: RankTelemetry, sink: ListSink) -> None:
    sink.is_busy = True
    telemetry.step()
    rank.push()
    telemetry.step()
    rank.push()
    assert sink.records == []
    sink.is_busy = False
    rank.push()
    assert [(record.first_step, record.step) for record in sink.records] == [(1, 2)]


def test_the_end_flushes_even_behind_a_push_that_is_under_way(
    rank: RankTelemetry, sink: ListSink
) -> None:
    sink.is_busy = True
    telemetry.step(loss=float("nan"))
    rank.flush(0.1)
    assert [record.step for record in sink.records] == [1]


def test_a_failure_is_logged_once_and_never_raised(
    rank: RankTelemetry, sink: ListSink, caplog: pytest.LogCaptureFixture
) -> None:
    sink.error = RuntimeError("no way through")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            telemetry.step(loss=1.0)
            rank.flush(0.1)
    (warning,) = caplog.records
    assert "training goes on without it" in warning.getMessage()


def test_a_wrong_argument_does_not_stop_training(
    rank: RankTelemetry, caplog: pytest.LogCaptureFixture
) -> None:
    many: Any = "many"  # what an untyped loop may do
    telemetry.step(samples=4)
    telemetry.step(samples=many)
    telemetry.step(samples=many)
    assert len(caplog.records) == 1


def test_outside_a_run_nothing_happens_and_nothing_is_imported() -> None:
    program = (
        "import sys; from training import telemetry; import training.telemetry.wire;"
        "telemetry.resume(step=3); telemetry.step(loss=1.0);"
        "print([m for m in ('ray', 'torch', 'numpy', 'training.telemetry.worker')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_process_knows_its_own_cpu_and_memory() -> None:
    process = Process()
    before = os.times()
    while os.times().user - before.user < 0.05:
        sum(range(10_000))
    percent = process.cpu_percent()
    assert percent is not None
    assert percent > 0
