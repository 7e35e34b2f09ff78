"""Steps folded into records, on a clock that the test holds."""

from __future__ import annotations

import gc
import math
import threading
import tracemalloc

import numpy as np
import pytest
import torch

from training.telemetry.worker.step_aggregate import AggregatedSteps, StepAggregate


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fold(clock: Clock) -> StepAggregate:
    return StepAggregate(clock=clock, wall=lambda: 1000.0 + clock.now)


def taken(fold: StepAggregate) -> AggregatedSteps:
    record = fold.take()
    assert record is not None
    return record


def test_steps_are_folded_into_one_record(fold: StepAggregate, clock: Clock) -> None:
    for index in range(4):
        clock.now += 0.5
        fold.step(loss=float(index), samples=8, data_wait_s=0.1, checkpoint_s=0.2)
    clock.now += 3
    record = taken(fold)
    assert (record.first_step, record.step, record.steps_total) == (1, 4, 4)
    assert record.loss == 3.0
    assert record.t == 1102.0, "when the last step ended, not when it was asked"
    assert record.step_time_s == pytest.approx(0.5)
    assert record.samples_per_s == pytest.approx(16)
    assert record.data_wait_s == pytest.approx(0.1), "a mean"
    assert record.checkpoint_s == pytest.approx(0.8), "a sum"
    assert fold.take() is None


def test_time_between_records_belongs_to_the_next_one(fold: StepAggregate, clock: Clock) -> None:
    fold.step(samples=8)
    first = taken(fold)
    assert (first.step_time_s, first.samples_per_s) == (None, None), "nothing says when it began"
    clock.now += 10
    fold.step(samples=8)
    second = taken(fold)
    assert (second.step_time_s, second.samples_per_s) == (10, 0.8)
    assert (second.first_step, second.step) == (2, 2)


def test_a_resumed_run_continues_counting(fold: StepAggregate) -> None:
    fold.resume(500)
    fold.step()
    fold.step()
    record = taken(fold)
    assert (record.first_step, record.step, record.steps_total) == (501, 502, 2)


def test_a_step_may_be_numbered_by_the_loop(fold: StepAggregate) -> None:
    fold.step(step=41)
    fold.step()
    record = taken(fold)
    assert (record.first_step, record.step) == (41, 42)


def test_unreported_value_is_none_and_not_zero(fold: StepAggregate) -> None:
    fold.step()
    record = taken(fold)
    for name in ("loss", "epoch", "data_wait_s", "comm_s", "checkpoint_s", "grad_norm"):
        assert getattr(record, name) is None


def test_a_tensor_is_read_when_taken_and_without_its_graph(fold: StepAggregate) -> None:
    weight = torch.ones((), requires_grad=True)
    fold.step(loss=weight * 3, grad_norm=torch.tensor(2.0), learning_rate=torch.tensor(0.5))
    assert fold._loss.grad_fn is None
    record = taken(fold)
    assert (record.loss, record.grad_norm, record.learning_rate) == (3.0, 2.0, 0.5)


@pytest.mark.parametrize("bad", [torch.ones(3), "high", object(), [1.0]])
def test_non_numeric_argument_is_omitted(fold: StepAggregate, bad: object) -> None:
    fold.step(loss=bad)
    assert taken(fold).loss is None


class Bad:
    """Arguments of an untyped loop."""

    def __float__(self) -> float:
        raise OverflowError


@pytest.mark.parametrize("bad", ["many", object(), [1], torch.ones(2), Bad()])
def test_invalid_sample_count_adds_nothing(fold: StepAggregate, clock: Clock, bad: object) -> None:
    fold.step(samples=4, tokens=8)
    for step in (2, bad):
        clock.now += 0.5
        fold.step(samples=bad, tokens=8, step=step, data_wait_s=bad, epoch=bad, loss=bad)
    record = taken(fold)
    assert (record.samples_per_s, record.tokens_per_s) == (None, 16.0)
    assert (record.step, record.data_wait_s, record.epoch, record.loss) == (3, None, None, None)


@pytest.mark.parametrize("bad", [10**400, 2**60, -(2**60), math.inf, math.nan, "7th", None, Bad()])
def test_a_step_that_is_no_number_of_a_step_is_counted(fold: StepAggregate, bad: object) -> None:
    fold.resume(41)
    fold.resume(bad)
    fold.step(step=bad)
    assert taken(fold).step == 42


def test_tokens_may_be_counted_on_the_device(fold: StepAggregate, clock: Clock) -> None:
    fold.step(tokens=torch.tensor(9))
    count = torch.tensor(100)
    for _ in range(2):
        clock.now += 1
        fold.step(tokens=count, samples=torch.tensor(4.0, requires_grad=True))
    fold.step(tokens=50)
    count.zero_()  # the loop's own
    clock.now += 0
    record = taken(fold)
    assert (record.tokens_per_s, record.samples_per_s) == (125.0, 4.0)


def test_numpys_numbers_are_numbers(fold: StepAggregate, clock: Clock) -> None:
    fold.step()
    clock.now += 1
    fold.step(loss=np.float32(0.5), samples=np.int64(3), step=np.int64(7))
    record = taken(fold)
    assert (record.loss, record.samples_per_s, record.step) == (0.5, 3.0, 7)


def test_a_clock_that_goes_back_gives_no_times_and_no_future(
    fold: StepAggregate, clock: Clock
) -> None:
    fold.step()
    clock.now -= 50
    fold.step(samples=1)
    clock.now -= 50
    record = taken(fold)
    assert (record.step_time_s, record.samples_per_s) == (None, None)
    assert record.t == 1000.0
    clock.now += 2
    fold.step(samples=1)
    assert taken(fold).step == 3


def test_steps_of_several_threads_are_all_counted(fold: StepAggregate) -> None:
    def train() -> None:
        for _ in range(2000):
            fold.step(samples=1)

    threads = [threading.Thread(target=train) for _ in range(4)]
    for thread in threads:
        thread.start()
    seen = 0
    while any(thread.is_alive() for thread in threads):
        record = fold.take()
        if record is not None:
            assert record.first_step == seen + 1, "none is told twice or left out"
            seen = record.step
    last = fold.take()
    assert (last.steps_total if last else seen) == 8000


def test_an_aggregate_that_is_not_taken_does_not_grow(fold: StepAggregate, clock: Clock) -> None:
    def size(steps: int) -> int:
        for _ in range(steps):
            clock.now += 1
            fold.step(loss=torch.tensor(1.0), samples=3, tokens=torch.tensor(5), data_wait_s=0.1)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        few = size(100)
        assert size(5000) - few < 65536, "13 bytes a step: less than an object"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_kept(fold: StepAggregate, bad: float) -> None:
    fold.step(loss=torch.tensor(bad))
    assert taken(fold).loss == pytest.approx(bad, nan_ok=True)
