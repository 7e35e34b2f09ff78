"""A rank's telemetry: it pushes without waiting, and its failures stay its own."""

from __future__ import annotations

import gc
import logging
import math
import os
import random
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from itertools import count
from typing import Any, ClassVar

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tests.training.fake_nvml import FakeNvml
from training import telemetry
from training.telemetry.gpu.gpu import Gpu
from training.telemetry.hang import watchdog
from training.telemetry.hang.stacks import stacks
from training.telemetry.hang.watchdog import Watchdog
from training.telemetry.wire import Dump, Hang, Record, Steps, Tick, decode, encode
from training.telemetry.worker.process_usage import Process
from training.telemetry.worker.step_aggregate import StepAggregate
from training.telemetry.worker.timers import Sections
from training.telemetry.worker.worker import RankTelemetry


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

    def send_hang(self, record: Hang) -> None:
        return

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
    assert "training continues without it" in warning.getMessage()


def test_a_wrong_argument_does_not_stop_training_nor_telemetry(
    rank: RankTelemetry, sink: ListSink, caplog: pytest.LogCaptureFixture
) -> None:
    class Poison:
        def detach(self) -> None:
            raise MemoryError

    wrong: Any = Poison()  # arguments of an untyped loop
    for _ in range(3):
        telemetry.step(loss=wrong, samples=4)
    assert len(caplog.records) == 1
    telemetry.step(loss=0.5, samples=4)
    rank.push()
    assert [record.loss for record in sink.records] == [0.5]


class Held(torch.autograd.Function):
    """Keeps a reference for its backward pass, which the test can watch."""

    seen: ClassVar[weakref.ref[torch.Tensor]]

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        ctx.activation = value.detach().clone()
        Held.seen = weakref.ref(ctx.activation)
        return value * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0] * 2


def test_a_step_that_was_reported_keeps_no_activation_alive(
    rank: RankTelemetry, sink: ListSink
) -> None:
    loss: Any = Held.apply(torch.ones((), requires_grad=True))
    assert Held.seen() is not None
    telemetry.step(loss=loss, grad_norm=loss)
    del loss
    assert Held.seen() is None
    rank.push()
    assert [record.loss for record in sink.records] == [2.0]


def test_a_count_that_the_loop_uses_again_is_counted_when_it_is_reported(
    sink: ListSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = on_clock((float(second) for second in count()), sink)
    monkeypatch.setattr(telemetry, "_rank", rank)
    tokens = torch.tensor(0)
    telemetry.resume(step=30)
    telemetry.step(tokens=9)
    for _ in range(2):
        tokens += 50
        telemetry.step(tokens=tokens)
    telemetry.step(tokens=150)
    rank.push()
    (record,) = sink.records
    assert (record.first_step, record.step) == (31, 34)
    assert record.tokens_per_s is not None
    assert record.step_time_s is not None
    assert record.tokens_per_s * record.step_time_s == pytest.approx(300 / 3)


def test_steps_before_and_after_a_resume_are_one_sample(
    rank: RankTelemetry, sink: ListSink
) -> None:
    telemetry.step(loss=1.0)
    telemetry.resume(step=7)
    telemetry.step(loss=2.0)
    rank.push()
    assert [(record.first_step, record.step) for record in sink.records] == [(1, 8)]


class Hostile:
    """Every way to look at it fails, each in its own way."""

    def __float__(self) -> float:
        raise KeyError("float")

    def __int__(self) -> int:
        raise OSError("int")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


GARBAGE: tuple[Any, ...] = (
    *(Hostile(), object(), [], {}, "x", b"", (), 10**400, -1, 1e308, math.nan, math.inf, True),
    *(torch.ones(2), torch.tensor([]), torch.tensor(1, dtype=torch.complex64), None, lambda: 1),
)


def test_ten_thousand_calls_with_garbage_neither_raise_nor_stop_the_records(
    rank: RankTelemetry, sink: ListSink
) -> None:
    draw = random.Random(5)
    names = ("loss", "samples", "tokens", "epoch", "learning_rate", "grad_norm", "step")
    waits = ("data_wait_s", "comm_s", "checkpoint_s")
    for index in range(10_000):
        given: dict[str, Any] = {name: draw.choice(GARBAGE) for name in (*names, *waits)}
        with telemetry.section(draw.choice(("data", "forward", *GARBAGE))):
            telemetry.step(**given)
        if index % 100 == 0:
            given = {name: draw.choice(GARBAGE) for name in ("flops_per_sample", "flops_per_token")}
            telemetry.model(**given, peak_flops=draw.choice(GARBAGE))
            telemetry.resume(step=draw.choice(GARBAGE))
            telemetry.ddp(draw.choice(GARBAGE))
            rank.flush(1.0)
    sink.records.clear()
    telemetry.model(flops_per_sample=1.0, peak_flops=1e12)
    telemetry.step(step=7, loss=0.5, learning_rate=0.1, grad_norm=1.0, epoch=1.0)
    rank.flush(1.0)
    (record,) = sink.records
    assert (record.step, record.loss) == (7, 0.5)
    assert decode(encode(Record(1, 1.0, Tick(run="r", ranks=(record,))))) is not None


def test_sections_are_reported_with_the_steps(rank: RankTelemetry, sink: ListSink) -> None:
    telemetry.step()
    for _ in range(2):
        for batch in telemetry.wrap_loader([1]):
            with telemetry.section("forward"), telemetry.section("backward"):
                assert batch == 1
        with telemetry.section("checkpoint"):
            pass
        telemetry.step(data_wait_s=10.0, comm_s=0.25)
    rank.push()
    (record,) = sink.records
    assert record.data_wait_s is not None
    assert 20 / 3 < record.data_wait_s < 10, "what the loop timed itself, and the loader's"
    assert record.comm_s == pytest.approx(0.5 / 3)
    assert record.optimizer_s is None
    for took in (record.forward_s, record.backward_s, record.checkpoint_s):
        assert took is not None
        assert 0 < took < 1


def test_another_thread_that_takes_over_the_steps_counts_after_the_next_push(
    rank: RankTelemetry, sink: ListSink
) -> None:
    telemetry.step()
    rank.push()
    telemetry.step()

    def train() -> None:
        for _ in range(3):
            with telemetry.section("forward"):
                pass
            telemetry.step()
            rank.push()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    reported = [(record.step, record.forward_s is not None) for record in sink.records]
    assert reported == [(1, False), (3, False), (4, False), (5, True)]


def test_a_section_of_no_known_name_is_reported_once_and_does_nothing(
    rank: RankTelemetry, caplog: pytest.LogCaptureFixture
) -> None:
    wrong: Any = "fwd"
    for _ in range(3):
        with telemetry.section(wrong):
            pass
    (warning,) = caplog.records
    assert "'fwd'" in warning.getMessage()
    assert "forward" in warning.getMessage()


def on_clock(
    clock: Iterator[float], sink: ListSink, ids: tuple[str, ...] = (), gpu: Gpu | None = None
) -> RankTelemetry:
    def now() -> float:
        return next(clock)

    return RankTelemetry(0, 1, sink, ids, StepAggregate(now), Sections(now, lambda: None), gpu)


def test_utilisation_of_the_model_is_reported_against_a_given_peak(
    sink: ListSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([1.0, 3.0, 3.0])
    rank = on_clock(clock, sink)
    monkeypatch.setattr(telemetry, "_rank", rank)
    telemetry.model(flops_per_token=6e9, peak_flops=1e12)
    telemetry.step(tokens=100)
    telemetry.step(tokens=100)
    rank.push()
    (record,) = sink.records
    assert record.tokens_per_s == 50.0
    assert record.mfu_percent == pytest.approx(30.0)


@pytest.mark.parametrize(
    ("ids", "expected"), [(("0",), 50.0), (("0", "1"), 25.0), (("MIG-a",), None), ((), None)]
)
def test_the_peak_is_that_of_all_gpus_of_the_rank_by_name(
    ids: tuple[str, ...],
    expected: float | None,
    sink: ListSink,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """989.5 TFLOPS each. The peak of a slice, or of a CPU, is not known."""
    clock = iter([1.0, 2.0, 2.0])
    gpu = Gpu(ids, FakeNvml)
    gpu.read()
    rank = on_clock(clock, sink, ids, gpu)
    monkeypatch.setattr(telemetry, "_rank", rank)
    telemetry.model(flops_per_sample=989.5e12 / 2)
    telemetry.step(samples=1)
    telemetry.step(samples=1)
    rank.push()
    (record,) = sink.records
    assert record.mfu_percent == (None if expected is None else pytest.approx(expected))


def test_a_flush_does_not_wait_for_a_push_that_hangs(sink: ListSink) -> None:
    rank = RankTelemetry(0, 1, sink)
    hanging, over = threading.Event(), threading.Event()

    def hang(record: Steps) -> None:
        hanging.set()
        over.wait(30)

    sink.send = hang  # type: ignore[method-assign]
    rank.step()
    thread = threading.Thread(target=rank.push)
    thread.start()
    assert hanging.wait(10)
    began = time.monotonic()
    rank.flush(0.1)
    took = time.monotonic() - began
    over.set()
    thread.join()
    assert took < 5


def test_a_forked_worker_of_a_data_loader_does_not_count(
    rank: RankTelemetry, sink: ListSink
) -> None:
    telemetry.step()
    loader: DataLoader[int] = DataLoader(Stepping(), batch_size=1, num_workers=1)
    assert [bool(each) for each in loader] == [True, True], "no rank in the worker's process"
    telemetry.step()
    rank.push()
    assert [record.step for record in sink.records] == [2]


class Stepping(Dataset[int]):
    """Reports steps where none should be reported."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        with telemetry.section("forward"):
            telemetry.step()
        return int(telemetry._rank is None)


def test_outside_a_run_nothing_happens_and_nothing_is_imported() -> None:
    program = (
        "import sys; from training import telemetry; import training.telemetry.wire;"
        "telemetry.resume(step=3); telemetry.step(loss=1.0); telemetry.model(flops_per_token=1);"
        "b = [1]; assert telemetry.wrap_loader(b) is b;"
        "s = telemetry.section('data'); s.__enter__(); s.__exit__(None, None, None);"
        "print([m for m in ('ray', 'torch', 'numpy', 'training.telemetry.worker.worker')"
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


def test_end_of_a_child_process_is_no_negative_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A data loader's process that ends takes its hour of CPU time out of the sum."""
    now_s, dumps = 0.0, list[Dump]()
    child_s, work = 3600.0, 0.5

    def usage() -> tuple[float, float, float]:
        return now_s * work + (child_s if now_s < 16 else 0.0), 0.0, 0.0

    def emit(record: Hang) -> None:
        dumps.extend(dump for dump in record.dumps if dump.number > 0)

    monkeypatch.setattr(watchdog, "_usage", usage)
    steps = [0]
    rank = Watchdog("r", 0, 1, lambda: steps[0], emit, clock=lambda: now_s)
    for second in range(1, 31):
        now_s = float(second)
        steps[0] = min(second, 10)
        rank.poll()
    used = [dump.cpu_percent or 0.0 for dump in dumps]
    assert len(used) == 2
    assert all(30.0 < percent <= 50.0 for percent in used), used


class Tensor:
    """Memory of the device, of a loop that has switched the collector off."""


def test_stacks_keep_no_variable_of_a_thread_alive() -> None:
    ready, end = threading.Event(), threading.Event()
    seen: list[weakref.ref[Tensor]] = []

    def train() -> None:
        batch = Tensor()
        seen.append(weakref.ref(batch))
        ready.set()
        end.wait()

    thread = threading.Thread(target=train)
    thread.start()
    assert ready.wait(10)
    gc.disable()
    try:
        stacks()
        end.set()
        thread.join()
        assert seen[0]() is None
    finally:
        gc.enable()
