"""Throughput and memory by precision and batch size, up to the edge of memory."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from training.bench import units
from training.bench.largest_batch import edge
from training.bench.loop import Loop, same_step
from training.bench.section import Finding, Level, Line, Plot, Section, Table
from training.bench.settings import BenchSettings
from training.data import load
from training.data.examples import Data
from training.loop.world import World
from training.parallel.single_device import whole
from training.techniques.memory import OutOfMemory

FLAT = 1.05
"""A batch of twice the size that gains less than this factor is not worth its memory."""
LONG_S = 1.0
"""The time limit for the steps of one batch size."""
ROOM = 4
"""On a CPU, at most this fraction of the host's free memory is used."""


@dataclass(frozen=True, slots=True)
class Batch:
    precision: str
    batch_size: int
    samples_per_s: float
    peak_bytes: int
    """On a GPU, what torch allocated; on a CPU, the growth of the process."""


@dataclass(frozen=True, slots=True)
class Batches:
    model: str
    device: str
    limit_bytes: int
    """The device's memory; on a CPU the configured limit."""
    most: int
    """The largest batch that would have been tried."""
    batches: tuple[Batch, ...]


def measure(world: World, settings: BenchSettings) -> Batches:
    """Measure on one rank."""
    data = load(settings)
    limit_bytes = memory_limit(world, settings)
    most = 64 if settings.quick else 1 << 16
    precisions = ["fp32", "bf16"]
    if world.device.type == "cuda":
        precisions = ["fp32", "tf32", "bf16", "fp16"]
    found = []
    for precision in precisions:
        own = replace(settings, precision=precision)

        def attempt(batch_size: int, own: BenchSettings = own) -> Batch | None:
            return one(world, replace(own, batch_size=batch_size), data, limit_bytes)

        found += [batch for _, batch in edge(attempt, start=1, most=most)]
    return Batches(settings.model, world.device.type, limit_bytes, most, tuple(found))


def memory_limit(world: World, settings: BenchSettings) -> int:
    if world.device.type == "cuda":
        return int(torch.cuda.mem_get_info(world.device)[1])
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    return min(settings.memory_mb << 20, free * 1024 // ROOM)


def one(world: World, settings: BenchSettings, data: Data, limit_bytes: int) -> Batch | None:
    """None if it needs more memory than available."""
    found: Batch | None = None
    try:
        memory = Peak(world)
        with Loop(settings, world, whole, data, same_step(settings, world, data)) as loop:
            loop.turn(1)
            steps = max(1, min(settings.turn_steps, int(LONG_S / loop.turn(1))))
            rate = steps * settings.batch_size / loop.turn(steps)
            found = Batch(settings.precision, settings.batch_size, rate, memory.read())
    except (torch.OutOfMemoryError, OutOfMemory):
        pass
    gc.collect()
    if world.device.type == "cuda":
        torch.cuda.empty_cache()
    return found if found and found.peak_bytes <= limit_bytes else None


class Peak:
    """The peak memory from now on."""

    def __init__(self, world: World) -> None:
        self._device = world.device
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            # Memory that malloc kept from earlier batches would hide what this one needs.
            ctypes.CDLL(None).malloc_trim(0)
            # proc(5): 5 resets the high-water mark to the current resident size.
            Path("/proc/self/clear_refs").write_text("5")
            self._before = self._resident("VmRSS")

    def read(self) -> int:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        return max(0, self._resident("VmHWM") - self._before)

    @staticmethod
    def _resident(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def section(result: Batches) -> Section:
    rows = tuple(
        (
            batch.precision,
            str(batch.batch_size),
            units.rate(batch.samples_per_s),
            units.size(batch.peak_bytes),
        )
        for batch in result.batches
    )
    precisions = list(dict.fromkeys(batch.precision for batch in result.batches))
    lines = tuple(
        Line(
            precision,
            tuple(
                (float(batch.batch_size), batch.samples_per_s)
                for batch in result.batches
                if batch.precision == precision
            ),
        )
        for precision in precisions
    )
    what = "the device's memory" if result.device == "cuda" else "the bound that was set"
    plots = (
        Plot("batches", "Throughput by batch size", "batch size", "examples per second", lines,
             log_x=True),
    )  # fmt: skip
    return Section(
        "Precision and batch size",
        f"{result.model} on {result.device}, one rank, batches doubled and then narrowed down to "
        f"{what}, {units.size(result.limit_bytes)}. Peak memory is what torch allocated on a "
        "GPU, and how much the process grew on a CPU.",
        (Table(("precision", "batch", "examples", "peak memory"), rows),),
        plots if rows else (),
        findings(result),
    )


def findings(result: Batches) -> tuple[Finding, ...]:
    by_precision: dict[str, list[Batch]] = {}
    for batch in result.batches:
        by_precision.setdefault(batch.precision, []).append(batch)
    if not by_precision:
        return (
            Finding(
                Level.PROBLEM,
                f"Not even one example fits into {units.size(result.limit_bytes)}.",
                "A smaller model, activation_checkpointing=true, or more memory (memory_mb).",
            ),
        )
    found = []
    for precision, batches in by_precision.items():
        knee, largest = enough(batches), batches[-1]
        fits = f"{largest.batch_size} examples are the most that fit"
        if largest.batch_size * 2 > result.most:
            fits = f"{largest.batch_size} examples fit, and no more were tried"
        worth = (
            f"from {knee.batch_size} on ({units.rate(knee.samples_per_s)}, "
            f"{units.size(knee.peak_bytes)}) a larger batch is hardly faster"
        )
        if knee is largest:
            worth = "larger ones are faster up to there"
        found.append(Finding(Level.NOTE, f"{precision}: {fits}; {worth}."))
    best = {name: max(b.samples_per_s for b in batches) for name, batches in by_precision.items()}
    fastest = max(best, key=lambda name: best[name])
    if "fp32" in best and best[fastest] >= FLAT * best["fp32"]:
        times = best[fastest] / best["fp32"]
        advice = f"Train with precision={fastest}, if the loss agrees."
        found.append(
            Finding(Level.NOTE, f"{fastest} is {times:.2f} times as fast as fp32.", advice)
        )
    return tuple(found)


def enough(batches: list[Batch]) -> Batch:
    """The smallest batch that no larger one beats by the factor FLAT."""
    most = max(batch.samples_per_s for batch in batches)
    return next(batch for batch in batches if batch.samples_per_s * FLAT >= most)
