"""The cost of telemetry for a training loop: `python -m tests.bench.telemetry_cost`.

After a step of 5 ms, whose work has filled the caches: the training thread's time of one section,
of six, of one `step()` with two tensors, and of all of them. The order is random, and the median of
an empty call is subtracted: pairs of whole loops vary by more than this costs. Then the same in a
tight loop, where all of it is in the cache; on a GPU a section with its CUDA events. The memory of
steps that no thread takes. And the real job on a real cluster, with and without telemetry in
alternating epochs of one run.
"""

from __future__ import annotations

import gc
import pickle
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from tests.bench import run
from tests.bench.cluster import two_workers
from tests.bench.table import Line, Table, load, say, show, spread
from training import telemetry
from training.telemetry.wire import Hang, Steps
from training.telemetry.worker.timers import Sections
from training.telemetry.worker.worker import RankTelemetry

CALL_TARGET_S = 20e-6
SHARE_TARGET = 0.01
RATIO_TARGET = 1.01
CALL = f"≤ {CALL_TARGET_S * 1e6:.0f} µs"
STEP_S = 5e-3
GROWTH_TARGET_BYTES = 16_384
ROUNDS = 1_500
PUSHES = 20
JOB_S = 120.0


class PickleSink:
    """What a rank's process does with a record before it is sent."""

    def busy(self) -> bool:
        return False

    def send(self, record: Steps) -> None:
        pickle.dumps(record)

    def send_hang(self, record: Hang) -> None:
        return

    def drain(self, timeout_s: float) -> None:
        return


class TimedRank(RankTelemetry):
    def __init__(self) -> None:
        super().__init__(0, 1, PickleSink())
        self.pushes_s: list[float] = []
        """Of the pushing thread's CPU."""

    def push(self) -> None:
        began = time.thread_time()
        super().push()
        self.pushes_s.append(time.thread_time() - began)


def nothing(loss: torch.Tensor) -> None:
    return


def tell(loss: torch.Tensor) -> None:
    telemetry.step(
        loss=loss,
        samples=16,
        tokens=16 * 1024,
        epoch=1.5,
        learning_rate=1e-3,
        grad_norm=loss,
        data_wait_s=1e-4,
        checkpoint_s=0.0,
    )


def time_sections(loss: torch.Tensor) -> None:
    """The six that there are, once each."""
    for name in SECTIONS:
        with telemetry.section(name):
            pass


def time_one(loss: torch.Tensor) -> None:
    with telemetry.section("forward"):
        pass


def call_s(act: Callable[[torch.Tensor], None], calls: int = 5_000) -> float:
    """Processor seconds of one call, the loop's own cost taken off: the best of 9."""
    loss = torch.ones((), requires_grad=True) * 2

    def timed(act: Callable[[torch.Tensor], None]) -> float:
        began = time.thread_time()
        for _ in range(calls):
            act(loss)
        return (time.thread_time() - began) / calls

    return min(timed(act) for _ in range(9)) - min(timed(nothing) for _ in range(9))


def step_with_sections(loss: torch.Tensor) -> None:
    time_sections(loss)
    tell(loss)


@dataclass(frozen=True, slots=True)
class Growth:
    left_bytes: int
    unread_bytes: int
    """At most, before it was added up."""


def growth(rank: RankTelemetry, steps: int = 20_000) -> Growth:
    """The Python memory of steps with all sections that are never collected."""
    loss = torch.ones(()) * 2

    def traced_bytes() -> int:
        rank._sections.read()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    for _ in range(1000):
        step_with_sections(loss)
    tracemalloc.start()
    try:
        step_with_sections(loss)
        before = traced_bytes()
        tracemalloc.reset_peak()
        for _ in range(steps):
            step_with_sections(loss)
        peak = tracemalloc.get_traced_memory()[1]
        return Growth(traced_bytes() - before, peak - before)
    finally:
        tracemalloc.stop()


def cuda_section_s(steps: int = 60) -> float | None:
    """The same with CUDA events; None without a GPU. As many steps as the pool has events for."""
    if not torch.cuda.is_available():
        return None
    torch.zeros((), device="cuda")
    sections = Sections()
    took: list[float] = []
    for _ in range(5):
        sections.end_step()
        began = time.perf_counter()
        for _ in range(steps):
            for name in SECTIONS:
                with sections.by_name[name]:
                    pass
            sections.end_step()
        took.append((time.perf_counter() - began) / steps / len(SECTIONS))
        torch.cuda.synchronize()
        sections.take()
    return min(took[1:])  # the first makes the events


def work(size: int) -> Callable[[], torch.Tensor]:
    weights = torch.rand(size, size, requires_grad=True)

    def step() -> torch.Tensor:
        loss = (weights @ weights).mean()
        torch.autograd.backward(loss)
        weights.grad = None
        return loss

    return step


SECTIONS: tuple[telemetry.SectionName, ...] = (
    "data",
    "forward",
    "backward",
    "communication",
    "optimizer",
    "checkpoint",
)


def five_milliseconds() -> tuple[Callable[[], torch.Tensor], float]:
    """A step of about that length on this machine, and how long it is."""

    def cpu_s(step: Callable[[], torch.Tensor], steps: int = 20) -> float:
        began = time.thread_time()
        for _ in range(steps):
            step()
        return (time.thread_time() - began) / steps

    for size in range(64, 2048, 16):
        step = work(size)
        took = min(cpu_s(step) for _ in range(3))
        if took >= STEP_S:
            break
    return step, took


ACTS: dict[str, Callable[[torch.Tensor], None]] = {
    "nothing": nothing,
    "section": time_one,
    "sections": time_sections,
    "step": tell,
    "both": step_with_sections,
}


def after_a_step(step: Callable[[], torch.Tensor]) -> dict[str, list[float]]:
    """Seconds of the training thread's CPU that each of ACTS takes; the empty call's median off."""
    took: dict[str, list[float]] = {name: [] for name in ACTS}
    draw = random.Random(1)
    names = list(ACTS)
    for _ in range(ROUNDS):
        draw.shuffle(names)
        for name in names:
            act, loss = ACTS[name], step()
            began = time.thread_time_ns()
            act(loss)
            took[name].append((time.thread_time_ns() - began) / 1e9)
    empty_s = statistics.median(took.pop("nothing"))
    return {name: [each_s - empty_s for each_s in took_s] for name, took_s in took.items()}


def pushed_s(rank: TimedRank, step_s: float) -> float:
    """The pushing thread's CPU time for a second of such steps: the median."""
    loss = torch.ones(()) * 2
    rank.pushes_s.clear()
    for _ in range(PUSHES):
        for _ in range(round(1 / step_s)):
            step_with_sections(loss)
        rank.push()
    return statistics.median(rank.pushes_s)


def measure() -> Table:
    began = load()
    return Table(
        "What telemetry costs a step",
        f"CPU time of the training thread, over {ROUNDS:,} rounds, minus that of an empty call: "
        "median (quartiles). First the calls after a training step, then the same calls in a loop "
        "without training, then a job with 2 ranks on a local cluster, whose epochs alternate "
        "between with and without telemetry. The target of the job refers to the CPU time of the "
        "process, because other programs affect it less than the wall time.",
        [*measure_loop(), *measure_job()],
        began,
    )


def measure_loop() -> list[Line]:
    torch.set_num_threads(1)
    rank = TimedRank()
    telemetry._rank = rank
    grew = growth(rank)
    say("after a step …")
    step, step_s = five_milliseconds()
    push_s = pushed_s(rank, step_s)
    rank.start()
    cold = after_a_step(step)
    say("in a tight loop …")
    hot = {name: call_s(act) for name, act in ACTS.items() if name != "nothing"}
    rank.close()
    telemetry._rank = None
    return [
        *(call(what, cold[name]) for what, name in CALLS),
        after("`step()` and six sections", cold["both"], step_s),
        Line(
            "share of the step",
            f"{statistics.median(cold['both']) / step_s:.2%}",
            f"≤ {SHARE_TARGET:.0%}",
            statistics.median(cold["both"]) <= SHARE_TARGET * step_s,
        ),
        Line(
            "the pushing thread, for a second of such steps",
            f"{push_s * 1e3:.2f} ms, {push_s:.2%} of a core",
        ),
        *(hot_line(what, hot[name], is_one_call=True) for what, name in CALLS),
        hot_line("`step()` and six sections", hot["both"], is_one_call=False),
        *cuda_line(),
        Line(
            "memory after 20,000 steps that no thread has evaluated",
            f"{grew.left_bytes} bytes, {grew.unread_bytes / 1e3:.0f} kB before the evaluation",
            f"≤ {GROWTH_TARGET_BYTES} bytes",
            grew.left_bytes <= GROWTH_TARGET_BYTES,
        ),
    ]


CALLS = (
    ("one `step()` with two tensors", "step"),
    ("one `section()`, entered and exited", "section"),
)


def after(what: str, took_s: list[float], step_s: float) -> Line:
    micros = [each_s * 1e6 for each_s in took_s]
    return Line(f"after a step of {step_s * 1e3:.1f} ms: {what}", spread(micros, "µs", 1))


def call(what: str, took_s: list[float]) -> Line:
    """Mostly what it takes to read its code again, which the step has driven out of the caches."""
    return Line(f"after a step: {what}", spread([each_s * 1e6 for each_s in took_s], "µs", 1))


def hot_line(what: str, took_s: float, *, is_one_call: bool) -> Line:
    held = (CALL, took_s <= CALL_TARGET_S) if is_one_call else ()
    return Line(f"in a tight loop: {what}", f"{took_s * 1e6:.2f} µs", *held)


def cuda_line() -> list[Line]:
    took_s = cuda_section_s()
    if took_s is None:
        return []
    what = f"one section on {torch.cuda.get_device_name()}, two CUDA events"
    return [Line(what, f"{took_s * 1e6:.2f} µs", CALL, took_s <= CALL_TARGET_S)]


def measure_job() -> list[Line]:
    with (
        TemporaryDirectory() as directory,  # outermost: the run writes there until its cluster ends
        two_workers() as backend,
        run.training(backend, Path(directory), mute_every_other_epoch=True) as session,
    ):
        say(f"training for {JOB_S:g} s …")
        session.wait(lambda store: False, JOB_S)
        recorded = run.notes(Path(directory), 0)
    epochs = epochs_of(recorded)
    cpu, wall = (neighbours([(epoch.told, read(epoch)) for epoch in epochs]) for read in READ)
    step_s = statistics.median(epoch.wall_s for epoch in epochs)
    job = f"the job's step ({step_s * 1e3:.0f} ms)"
    what = f"{job} with ÷ without telemetry, {len(cpu)} pairs of epochs"
    return [
        Line(
            f"{what}, CPU time of the rank's process",
            spread(cpu, digits=4),
            f"≤ {RATIO_TARGET}",
            statistics.median(cpu) <= RATIO_TARGET,
        ),
        Line(
            "the same in wall time, with the other programs on the machine", spread(wall, digits=4)
        ),
    ]


@dataclass(frozen=True, slots=True)
class Epoch:
    """The mean seconds of a step, without checkpoints, with telemetry (`told`) or without."""

    told: bool
    cpu_s: float
    wall_s: float


READ: tuple[Callable[[Epoch], float], ...] = (lambda e: e.cpu_s, lambda e: e.wall_s)


def epochs_of(recorded: list[run.Note]) -> list[Epoch]:
    """Complete steps. Steps that wait for a checkpoint are left out."""
    steps: dict[int, list[tuple[bool, float, float]]] = {}
    for before, note in pairwise(recorded):
        if not note.checkpoint_s:
            took = (note.told, note.cpu_s - before.cpu_s, note.ended_s - before.ended_s)
            steps.setdefault(int(note.epoch - 1e-9), []).append(took)
    return [
        Epoch(reported[0], statistics.fmean(cpu), statistics.fmean(wall))
        for number in sorted(steps)[1:-1]
        for reported, cpu, wall in [tuple(zip(*steps[number], strict=True))]
    ]


def neighbours(epochs: list[tuple[bool, float]]) -> list[float]:
    """With ÷ without, of each epoch and the one after it."""
    return [a / b if reported else b / a for (reported, a), (_, b) in pairwise(epochs)]


if __name__ == "__main__":
    sys.exit(show(measure))
