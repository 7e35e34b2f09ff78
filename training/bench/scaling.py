"""Throughput by the number of ranks, and the causes of the loss.

Strong scaling divides one batch among the ranks; weak scaling gives each rank a full batch. On CPUs
every rank of every world has the same number of cores, so that a single rank is not faster because
it has the whole host.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from training.bench import units
from training.bench.cpu_affinity import own_cores
from training.bench.loop import Loop, in_turn, same_step
from training.bench.repeated import Quartiles, ratios, spread
from training.bench.section import Finding, Level, Line, Plot, Section, Table
from training.bench.settings import BenchSettings
from training.data import load
from training.loop.settings import TrainSettings
from training.loop.world import World
from training.parallel.single_device import Whole, whole

T = TypeVar("T")
GOOD, POOR = 0.90, 0.70
"""Efficiency of weak scaling: GOOD or more is fine, less than POOR is a problem."""
STRONG, WEAK, APART = "strong", "weak", "apart"
"""APART: weak scaling without exchange of gradients: the loss is due to the shared host."""


@dataclass(frozen=True, slots=True)
class Point:
    kind: str
    ranks: int
    batch_size: int
    """The batch size of each rank."""
    samples_per_s: Quartiles
    """The throughput of all ranks together."""
    speedup: Quartiles
    """Relative to one rank, for each turn."""
    own_cores: bool
    """Each rank had as many cores as a single rank, or a GPU."""

    @property
    def efficiency(self) -> float:
        return self.speedup.median / self.ranks


@dataclass(frozen=True, slots=True)
class Scaling:
    model: str
    device: str
    cores_each: int
    """0 on GPUs."""
    points: tuple[Point, ...]


class Grouped(Whole):
    """DDP over the first ranks of a larger world."""

    def __init__(self, model: nn.Module, world: World, group: dist.ProcessGroup | None) -> None:
        super().__init__(model, world)
        self._ddp = DistributedDataParallel(
            self.model,
            device_ids=[world.device] if world.device.type == "cuda" else None,
            process_group=group,
            gradient_as_bucket_view=True,
        )
        self.model = self._ddp

    def accumulating(self) -> AbstractContextManager[object]:
        return self._ddp.no_sync()


class IndependentRanks(World):
    """The first ranks of a larger world, in which only DDP communicates during a turn."""

    def total(self, value: Tensor) -> Tensor:
        return value

    def gather_all(self, value: T) -> list[T]:
        return [value] * self.size

    def gather(self, value: float) -> list[float]:
        return [value] * self.size

    def wait(self) -> None:
        pass


def sizes(workers: int) -> list[int]:
    """1, 2, 4 … and the number of all ranks."""
    powers = [1 << at for at in range(workers.bit_length())]
    return sorted({*(size for size in powers if size < workers), workers})


def measure(world: World, settings: BenchSettings) -> Scaling:
    """Call on all ranks; only the answer of rank 0, which is in every world, is used. Ranks that
    are not in a world wait during that time, without using CPU.
    """
    on_gpu = world.device.type == "cuda"
    data = load(settings)
    kinds: list[tuple[str, int, int]] = []
    for size in sizes(world.size):
        total = settings.batch_size * world.size
        kinds += [(STRONG, size, total // size), (WEAK, size, settings.batch_size)]
        if size > 1:
            kinds.append((APART, size, settings.batch_size))
    turns: dict[tuple[str, int], list[float]] = {(kind, size): [] for kind, size, _ in kinds}
    with ExitStack() as held:
        pinned = on_gpu or held.enter_context(own_cores(world, settings.cores_each))
        groups: dict[int, Any] = {
            size: dist.new_group(list(range(size))) for size in sizes(world.size)
        }
        loops: dict[tuple[str, int], Loop] = {}
        for kind, size, batch_size in kinds:
            if world.rank >= size:
                continue
            part = IndependentRanks(world.rank, size, world.local_rank, world.device)

            def grouped(
                model: nn.Module,
                world: World,
                settings: TrainSettings,
                group: dist.ProcessGroup | None = groups[size],
            ) -> Whole:
                return Grouped(model, world, group)

            own = replace(settings, batch_size=batch_size)
            spread_over = whole if kind == APART or size == 1 else grouped
            loop = Loop(own, part, spread_over, data, same_step(own, part, data))
            loops[kind, size] = held.enter_context(loop)
        for turn in range(settings.rounds + 1):
            for kind, size, _ in in_turn(kinds, turn):
                world.wait()
                took_s = 0.0
                if world.rank < size:
                    began = time.perf_counter()
                    loops[kind, size].turn(settings.turn_steps)
                    dist.barrier(groups[size])
                    took_s = time.perf_counter() - began
                if turn:  # the first one warms up
                    turns[kind, size].append(took_s)
        alike = all(world.gather(float(pinned)))
    batch_sizes = {(kind, size): batch_size for kind, size, batch_size in kinds}
    rates = {
        (kind, size): [
            settings.turn_steps * batch_sizes[kind, size] * size / max(took_s, 1e-9)
            for took_s in taken
        ]
        for (kind, size), taken in turns.items()
    }
    return Scaling(
        settings.model,
        world.device.type,
        0 if on_gpu else settings.cores_each,
        points(rates, batch_sizes, own_cores=alike),
    )


def points(
    rates: Mapping[tuple[str, int], Sequence[float]],
    batch_sizes: Mapping[tuple[str, int], int],
    *,
    own_cores: bool,
) -> tuple[Point, ...]:
    """From samples per second by kind, ranks and turn."""
    return tuple(
        Point(
            kind=kind,
            ranks=size,
            batch_size=batch_sizes[kind, size],
            samples_per_s=spread(found),
            speedup=ratios(found, rates[STRONG if kind == STRONG else WEAK, 1]),
            own_cores=own_cores,
        )
        for (kind, size), found in rates.items()
    )


def section(result: Scaling) -> Section:
    where = (
        f"{result.cores_each} core(s) and as many threads a rank in every world"
        if result.cores_each
        else "one GPU a rank"
    )
    rows = tuple(
        (
            point.kind,
            str(point.ranks),
            str(point.batch_size),
            point.samples_per_s.text(units.rate),
            point.speedup.text(units.ratio),
            units.share(point.efficiency),
            "yes" if point.own_cores else "no: oversubscribed",
        )
        for point in result.points
    )
    columns = (
        "scaling", "ranks", "batch of a rank", "examples", "speed-up", "efficiency", "own cores",
    )  # fmt: skip
    lines = [
        Line(
            kind, tuple((float(p.ranks), p.speedup.median) for p in result.points if p.kind == kind)
        )
        for kind in (STRONG, WEAK)
    ]
    most = max(point.ranks for point in result.points)
    lines.append(Line("ideal", ((1.0, 1.0), (float(most), float(most)))))
    return Section(
        "Scaling",
        f"{result.model} on {result.device}, the same batch again and again, {where}; the worlds "
        "take turns, medians (quartiles); speed-up is over one rank, from turns side by side. "
        "Strong: one batch shared by the ranks; weak: a batch for each; apart: weak, "
        "without an exchange of gradients.",
        (Table(columns, rows),),
        (Plot("scaling", "Speed-up by ranks", "ranks", "speed-up", tuple(lines)),),
        findings(result),
    )


def findings(result: Scaling) -> tuple[Finding, ...]:
    """The efficiency of the largest world."""
    most = max(point.ranks for point in result.points)
    if most == 1:
        advice = "Give it more workers to compare world sizes."
        return (Finding(Level.NOTE, "Scaling was asked for with one rank alone.", advice),)
    at = {point.kind: point for point in result.points if point.ranks == most}
    if not at[WEAK].own_cores:
        return (
            Finding(
                Level.NOTE,
                f"{most} ranks had fewer cores each than one rank alone: the scaling is that of "
                "the cores.",
                "Use as many workers as there are cores, or one GPU each.",
            ),
        )
    weak = at[WEAK].efficiency
    text = f"Weak scaling to {most} ranks has an efficiency of {units.share(weak)}"
    if weak >= GOOD:
        return (Finding(Level.GOOD, f"{text}."),)
    if at[WEAK].speedup.high / most >= GOOD:
        best = units.share(at[WEAK].speedup.high / most)
        return (
            Finding(
                Level.NOTE,
                f"{text}, and its upper quartile is {best}: the turns are too uneven for a result.",
                "Measure again on a quiet machine, with more rounds and turn_steps.",
            ),
        )
    exchange = 1 - at[WEAK].speedup.median / at[APART].speedup.median
    sharing = 1 - at[APART].efficiency
    level = Level.PROBLEM if weak < POOR else Level.NOTE
    if exchange >= sharing:
        return (
            Finding(
                level,
                f"{text}: {units.share(exchange)} is the exchange of gradients, "
                f"{units.share(max(0.0, sharing))} the sharing of the machine.",
                "Exchange less often or less: a larger batch, accumulate, comm_hook=bf16; then "
                "look at the network.",
            ),
        )
    return (
        Finding(
            level,
            f"{text}: {units.share(sharing)} is lost though nothing is exchanged, "
            f"{units.share(max(0.0, exchange))} to the exchange of gradients.",
            "The ranks share what is short (memory bandwidth, power, other programs): spread "
            "them over hosts, or look for other programs.",
        ),
    )
