"""What checkpoints in memory cost training: `python -m tests.bench.memory_stall [SIZE …]`.

Two ranks with DDP and gloo, each with a holder of its own as on two nodes, and a checkpoint in
memory after every step (k = 1). In every other group of GROUP steps there are none. The time that
the loop spends for a checkpoint is measured by the clock and by the CPU time of its thread: the
latter does not depend on other programs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch

from tests.bench.table import Line, Table, load, say, show
from tests.training.memory_nodes import Nodes, holding
from tests.training.ranks import on_ranks
from training import telemetry
from training.checkpoint.in_folder import FolderCheckpoints
from training.checkpoint.memory.checkpoints import MemoryCheckpoints
from training.checkpoint.memory.shard import pack
from training.loop import train as loop
from training.loop.progress import Progress
from training.loop.settings import TrainSettings
from training.loop.world import World
from training.parallel.replicated import replicated
from training.process_stat import cpu_s

SHARE_TARGET = 0.005
GROUP = 10
"""Steps in a row with or without checkpoints."""
FIRST = 2
"""Steps at the start of a group that the one before still disturbs."""
TIMEOUT_S = 3600.0
NODES = ("a", "b")


@dataclass(frozen=True, slots=True)
class Size:
    settings: TrainSettings
    groups: int


SIZES = {
    # The job `checkpointed` with its default settings.
    "3": Size(TrainSettings(epochs=10_000), groups=60),
    "500": Size(
        TrainSettings(
            model="mlp",
            width=4500,
            data="synthetic",
            shape="1x32x32",
            classes=10,
            examples=100_000,
            batch_size=128,
        ),
        groups=8,
    ),
}


@dataclass(frozen=True, slots=True)
class Step:
    saves: bool
    is_first: bool
    """Of its group: the one before still disturbs it."""
    wall_s: float
    cpu_s: float
    """Of the training thread."""
    stall_s: float
    stall_cpu_s: float


@dataclass(frozen=True, slots=True)
class Rank:
    steps: tuple[Step, ...]
    shard_bytes: int
    need: str
    """As the run prints it; '' if this rank does not."""

    def of(self, *, saves: bool) -> list[Step]:
        return [step for step in self.steps if step.saves is saves and not step.is_first]


class _Measured:
    """The checkpoints of every other group, and what they cost since `taken`."""

    def __init__(self, memory: MemoryCheckpoints, world: World) -> None:
        self._memory, self._world = memory, world
        self.shard_bytes = 0
        self.taken()

    def taken(self) -> None:
        self.stall_s = self.stall_cpu_s = 0.0

    def before_update(self, step: int) -> float:
        return self._timed(lambda: self._memory.before_update(step))

    def after_step(self, progress: Progress) -> float:
        if not self.shard_bytes:
            self.shard_bytes = pack(progress.states(self._world.rank, self._world.size)).size_bytes
        if not saves(progress.step):
            return 0.0
        return self._timed(lambda: self._memory.after_step(progress))

    def _timed(self, act: Callable[[], float]) -> float:
        cpu_s = time.thread_time()
        took_s = act()
        self.stall_cpu_s += time.thread_time() - cpu_s
        self.stall_s += took_s
        return took_s


def saves(step: int) -> bool:
    return step // GROUP % 2 == 1


def train(world: World, folder: Path, nodes: Nodes, settings: TrainSettings) -> Rank:
    steps: list[Step] = []
    printed: list[str] = []
    with FolderCheckpoints(folder, world.rank, world.size) as stored:
        memory = MemoryCheckpoints(stored, nodes, NODES[world.rank], world, 1)
        measured = _Measured(memory, world)
        ended = [time.perf_counter(), time.thread_time()]

        def note(*, step: int, **_: Any) -> None:
            if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                torch.cuda.synchronize()
            now = time.perf_counter(), time.thread_time()
            # The checkpoint of a step is made before the next one ends.
            of = step - 1
            cost = measured.stall_s, measured.stall_cpu_s
            steps.append(
                Step(saves(of), of % GROUP < FIRST, now[0] - ended[0], now[1] - ended[1], *cost)
            )
            measured.taken()
            if memory._writer is not None:
                memory._writer.connected.wait()  # the holders are there from the start
            ended[:] = time.perf_counter(), time.thread_time()

        with (
            patch.object(telemetry, "step", note),
            patch("builtins.print", lambda text, **_: printed.append(str(text))),
        ):
            loop.train(settings, world, memory, replicated, in_memory=measured)
        memory.close()
    need = next((text for text in printed if text.startswith("checkpoints in memory")), "")
    return Rank(tuple(steps[GROUP:]), measured.shard_bytes, need)


def measure(names: Sequence[str]) -> Table:
    began = load()
    lines: list[Line] = []
    for name in names:
        size = SIZES[name]
        steps = GROUP * size.groups
        say(f"training for {steps} steps with a state of {name} MB …")
        settings = replace(size.settings, workers=2, max_steps=steps, save_every_epochs=10_000)
        with holding(*NODES) as started, TemporaryDirectory() as folder:
            ranks = on_ranks(2, train, Path(folder), started.nodes, settings, timeout_s=TIMEOUT_S)
            assert all(process.pid for process in started.processes.values())
            holders_s = sum(cpu_s(process.pid or 0) for process in started.processes.values())
        lines += _lines(ranks, holders_s)
    return Table(
        "What checkpoints in memory cost training",
        "Two ranks with DDP and gloo, and a checkpoint in memory after every step, copied to the "
        "memory of a holder and from there to another one, all on this machine. Every second block "
        f"of {GROUP} steps has no checkpoints. The stall is the time that the training loop spends "
        "for it.",
        lines,
        began,
    )


def _lines(ranks: Sequence[Rank], holders_s: float) -> list[Line]:
    with_one = [rank.of(saves=True) for rank in ranks]
    without = [rank.of(saves=False) for rank in ranks]
    name = f"{sum(rank.shard_bytes for rank in ranks) / 1e6:.1f} MB"
    shares = [_share(steps, "stall_cpu_s", "cpu_s") for steps in with_one]
    clock = [_share(steps, "stall_s", "wall_s") for steps in with_one]
    cpu_us = [1e6 * statistics.median(step.stall_cpu_s for step in steps) for steps in with_one]
    walls = [
        statistics.median(step.wall_s for step in steps)
        / statistics.median(step.wall_s for step in others)
        for steps, others in zip(with_one, without, strict=True)
    ]
    step_ms = 1e3 * statistics.median(step.cpu_s for step in without[0])
    copies = sum(step.saves for step in ranks[0].steps)
    return [
        Line(
            f"{name}: CPU time of the stall ÷ that of the step, by rank",
            f"{_listed(shares, '.2%')} ({_listed(cpu_us, '.0f')} µs of {step_ms:.1f} ms)",
            f"≤ {SHARE_TARGET:.1%}",
            max(shares) <= SHARE_TARGET,
        ),
        Line(f"{name}: stall ÷ time of the step by the clock, by rank", _listed(clock, ".2%")),
        Line(f"{name}: step by the clock ÷ one without, by rank", _listed(walls, ".2f")),
        Line(f"{name}: CPU time of the holders for a step", f"{1e3 * holders_s / copies:.1f} ms"),
        Line(f"{name}: memory", ranks[0].need.partition(": ")[2]),
    ]


def _share(steps: Sequence[Step], part: str, whole: str) -> float:
    sums = [sum(float(getattr(step, name)) for step in steps) for name in (part, whole)]
    return sums[0] / sums[1]


def _listed(values: Sequence[float], form: str) -> str:
    return ", ".join(format(value, form) for value in values)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", metavar="SIZE", help=f"MB: {', '.join(SIZES)}")
    names = parser.parse_args().sizes or list(SIZES)
    if unknown := sorted(set(names) - set(SIZES)):
        parser.error(f"no size is called {', '.join(unknown)}")
    return show(lambda: measure(names))


if __name__ == "__main__":
    sys.exit(main())
