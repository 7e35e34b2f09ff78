"""Collectives by size, and the share of a training step that waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
import torch.distributed as dist

from training.bench import units
from training.bench.cpu_affinity import own_cores
from training.bench.loop import Loop, in_turn, same_step
from training.bench.repeated import Quartiles, spread
from training.bench.section import Finding, Level, Line, Plot, Section, Table
from training.bench.settings import BenchSettings
from training.data import load
from training.loop.world import World
from training.models import build
from training.parallel.replicated import replicated
from training.parallel.single_device import whole

EXPOSED = 0.15
"""The share of the step that may wait for the exchange of gradients."""
FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1.0,
}
"""Bus bandwidth divided by algorithm bandwidth (NCCL tests, doc/PERFORMANCE.md): the load of the
slowest link, which can be compared with the hardware's bandwidth for any number of ranks.
"""
WAITS = 1.5
"""Waiting for more than this many times the duration of the all-reduce alone is not exchange."""
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Collective:
    operation: str
    size_bytes: int
    """The size of the whole: for all_gather each rank's output, for reduce_scatter its input."""
    time_s: Quartiles
    algorithm_bytes_per_s: float
    bus_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Exchange:
    """The cost of DDP's all-reduce in a step."""

    gradient_bytes: int
    step_s: Quartiles
    apart_s: Quartiles
    """The same step on every rank at the same time, without any exchange."""
    all_reduce_s: Quartiles
    """An all-reduce of the same number of bytes, with nothing else to do."""

    @property
    def exposed_s(self) -> float:
        """The part that the backward pass does not hide."""
        return max(0.0, self.step_s.median - self.apart_s.median)

    @property
    def exposed_share(self) -> float:
        """As a share of the step."""
        return self.exposed_s / self.step_s.median

    @property
    def hidden_share(self) -> float:
        """As a share of the all-reduce."""
        return min(1.0, max(0.0, 1 - self.exposed_s / self.all_reduce_s.median))


@dataclass(frozen=True, slots=True)
class Communication:
    backend: str
    ranks: int
    model: str
    collectives: tuple[Collective, ...]
    exchange: Exchange


def measure(world: World, settings: BenchSettings) -> Communication:
    """Call on all ranks."""
    most = 1 * MIB if settings.quick else 64 * MIB if world.device.type == "cpu" else 1024 * MIB
    size_bytes, sizes = 4 * KIB, []
    while size_bytes <= most:
        sizes.append(size_bytes)
        size_bytes *= 4
    times: dict[tuple[str, int], list[float]] = {
        (operation, size): [] for operation in FACTORS for size in sizes
    }
    for turn in range(settings.rounds + 1):
        for (operation, size), taken in times.items():
            took_s = time_of(operation, size, world)
            if turn:
                taken.append(took_s)
    return Communication(
        dist.get_backend(),
        world.size,
        settings.model,
        tuple(collective(*key, taken, world.size) for key, taken in times.items()),
        exchange(world, settings),
    )


def collective(operation: str, size_bytes: int, times: Sequence[float], ranks: int) -> Collective:
    taken = spread(times)
    algorithm = size_bytes / taken.median
    return Collective(
        operation, size_bytes, taken, algorithm, algorithm * FACTORS[operation](ranks)
    )


def time_of(operation: str, size_bytes: int, world: World) -> float:
    """Seconds of one collective, the mean of several: about 4 MiB in all, 1 to 50 repetitions."""
    share = max(1, size_bytes // 4 // world.size)
    whole_tensor = torch.ones(share * world.size, device=world.device)
    part = torch.ones(share, device=world.device)
    acts: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole_tensor, dist.ReduceOp.MAX),
        "all_gather": lambda: dist.all_gather_into_tensor(whole_tensor, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole_tensor),
        "broadcast": lambda: dist.broadcast(whole_tensor, 0),
    }
    act, times = acts[operation], min(50, max(1, 4 * MIB // size_bytes))
    act()
    world.wait()
    synchronize(world)
    began = time.perf_counter()
    for _ in range(times):
        act()
    synchronize(world)
    return (time.perf_counter() - began) / times


def exchange(world: World, settings: BenchSettings) -> Exchange:
    data = load(settings)
    model = build(settings, data.shape, data.classes)
    gradient_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    with ExitStack() as held:
        if world.device.type == "cpu":
            held.enter_context(own_cores(world, settings.cores_each))
        loops = [
            held.enter_context(Loop(settings, world, kind, data, same_step(settings, world, data)))
            for kind in (replicated, whole)
        ]
        steps: list[list[float]] = [[], []]
        all_reduces = []
        for turn in range(settings.rounds + 1):
            for loop, taken in in_turn(zip(loops, steps, strict=True), turn):
                world.wait()
                took_s = loop.turn(settings.turn_steps) / settings.turn_steps
                if turn:
                    taken.append(took_s)
            all_reduces.append(time_of("all_reduce", gradient_bytes, world))
        world.wait()
    return Exchange(gradient_bytes, spread(steps[0]), spread(steps[1]), spread(all_reduces[1:]))


def synchronize(world: World) -> None:
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)


def section(result: Communication) -> Section:
    rows = tuple(
        (
            item.operation,
            units.size(item.size_bytes),
            item.time_s.text(units.seconds),
            units.bandwidth(item.algorithm_bytes_per_s),
            units.bandwidth(item.bus_bytes_per_s),
        )
        for item in result.collectives
    )
    found = result.exchange
    step = (
        ("gradients of a step", units.size(found.gradient_bytes)),
        ("step", found.step_s.text(units.seconds)),
        ("step without an exchange", found.apart_s.text(units.seconds)),
        ("all-reduce of the gradients alone", found.all_reduce_s.text(units.seconds)),
        ("not hidden by the backward pass", units.seconds(found.exposed_s)),
        ("of the step", units.share(found.exposed_share)),
        ("of the all-reduce hidden", units.share(found.hidden_share)),
    )
    lines = tuple(
        Line(
            operation,
            tuple(
                (float(item.size_bytes), item.bus_bytes_per_s)
                for item in result.collectives
                if item.operation == operation
            ),
        )
        for operation in FACTORS
    )
    return Section(
        "Communication",
        f"{result.backend}, {result.ranks} ranks. Algorithm bandwidth is size ÷ time; bus "
        "bandwidth is that times 2(n−1)/n for all_reduce, (n−1)/n for all_gather and "
        "reduce_scatter, 1 for broadcast (NCCL tests, doc/PERFORMANCE.md). The step is that of "
        f"{result.model} with DDP, "
        "alternating with the same step that exchanges nothing.",
        (
            Table(("collective", "size", "time", "algorithm bandwidth", "bus bandwidth"), rows),
            Table(("DDP", "measured"), step),
        ),
        (
            Plot(
                "communication",
                "Bus bandwidth by size",
                "bytes",
                "bytes per second",
                lines,
                log_x=True,
                log_y=True,
            ),
        ),
        findings(result),
    )


def findings(result: Communication) -> tuple[Finding, ...]:
    if result.ranks == 1:
        return (Finding(Level.NOTE, "One rank alone exchanges nothing.", "Give it more workers."),)
    found = [_exposed(result.exchange)]
    reduces = [item for item in result.collectives if item.operation == "all_reduce"]
    best = max(reduces, key=lambda item: item.bus_bytes_per_s)
    half = next(r for r in reduces if r.bus_bytes_per_s >= best.bus_bytes_per_s / 2)
    found.append(
        Finding(
            Level.NOTE,
            f"all_reduce carries {units.bandwidth(best.bus_bytes_per_s)} at most and half of "
            f"that from {units.size(half.size_bytes)}; its smallest takes "
            f"{units.seconds(reduces[0].time_s.median)}.",
        )
    )
    return tuple(found)


def _exposed(found: Exchange) -> Finding:
    text = (
        f"{units.share(found.exposed_share)} of a step waits for gradients, "
        f"{units.share(found.hidden_share)} of their all-reduce is hidden"
    )
    if found.exposed_share <= EXPOSED:
        return Finding(Level.GOOD, f"{text}.")
    if found.exposed_s > WAITS * found.all_reduce_s.median:
        return Finding(
            Level.PROBLEM,
            f"{units.share(found.exposed_share)} of a step waits, longer than the all-reduce "
            f"of its gradients takes ({units.seconds(found.all_reduce_s.median)}): ranks wait "
            "for one another.",
            "Look for the rank that is late (cockpit names it) and for other work on its host.",
        )
    if found.all_reduce_s.median > found.apart_s.median:
        return Finding(
            Level.PROBLEM,
            f"{text}: it takes longer than the computing, so that it cannot be hidden.",
            "Send less: comm_hook=bf16 or powersgd, accumulate, a larger batch; or a faster "
            "network (interface, infiniband).",
        )
    return Finding(
        Level.PROBLEM,
        f"{text}, though the computing takes longer than it.",
        "Have it begin earlier: a smaller bucket_mb, static_graph=true; with many ranks a host, "
        "hierarchical.",
    )
