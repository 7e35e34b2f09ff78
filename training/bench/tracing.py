"""A few steps under torch's profiler as a trace, and the contents of memory, as files."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from training.bench import units
from training.bench.loop import Loop, same_step
from training.bench.section import Finding, Level, Section, Table
from training.bench.settings import BenchSettings
from training.data import load
from training.loop.world import World
from training.parallel.single_device import whole

STEPS = 3
LARGEST = 12
MANY_LAUNCHES = 0.5
"""The share of a step in which a GPU may be idle."""


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    calls: int
    self_s: float
    """On the device, without the called operations, over all steps."""


@dataclass(frozen=True, slots=True)
class Traced:
    model: str
    device: str
    host: str
    steps: int
    total_s: float
    """The time of all operations on the device."""
    clock_s: float
    trace: str
    """The name of the file for chrome://tracing or Perfetto."""
    memory: str
    """The name of the file; empty if there is none."""
    memory_why_not: str
    operations: tuple[Operation, ...]


def measure(world: World, settings: BenchSettings, folder: Path) -> Traced:
    """Trace on one rank; the files stay on its host."""
    data = load(settings)
    on_gpu = world.device.type == "cuda"
    trace, memory = folder / "trace.json.gz", folder / "memory.pickle"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with Loop(settings, world, whole, data, same_step(settings, world, data)) as loop:
        loop.turn(2)
        if on_gpu:
            torch.cuda.memory._record_memory_history(max_entries=100_000)
        # The loop has a separate thread, which a profile of only this one would miss.
        with profile(activities=activities, experimental_config=ALL_THREADS) as profiled:
            clock_s = loop.turn(STEPS)
        if on_gpu:
            torch.cuda.memory._dump_snapshot(str(memory))  # type: ignore[no-untyped-call]
            torch.cuda.memory._record_memory_history(enabled=None)
    profiled.export_chrome_trace(str(trace))
    operations = [
        Operation(
            event.key,
            event.count,
            (event.self_device_time_total if on_gpu else event.self_cpu_time_total) / 1e6,
        )
        for event in profiled.key_averages()
    ]
    operations.sort(key=lambda item: item.self_s, reverse=True)
    return Traced(
        settings.model,
        world.device.type,
        socket.gethostname(),
        STEPS,
        sum(item.self_s for item in operations),
        clock_s,
        trace.name,
        memory.name if on_gpu else "",
        "" if on_gpu else "torch keeps a history of allocations on CUDA only",
        tuple(operations[:LARGEST]),
    )


ALL_THREADS = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)


def section(result: Traced) -> Section:
    rows = tuple(
        (
            item.name,
            str(item.calls),
            units.seconds(item.self_s),
            units.share(item.self_s / result.total_s if result.total_s else 0.0),
        )
        for item in result.operations
    )
    memory = f"no memory snapshot ({result.memory_why_not})"
    if result.memory:
        memory = f"memory in {result.memory} (pytorch.org/memory_viz)"
    return Section(
        "Profile",
        f"{result.steps} steps of {result.model} on {result.device}, one rank of {result.host}: "
        f"trace in {result.trace} (chrome://tracing or Perfetto), {memory}. Time of each operation "
        "without those that it calls.",
        (Table(("operation", "calls", "time", "of all"), rows),),
        (),
        findings(result),
    )


def findings(result: Traced) -> tuple[Finding, ...]:
    if not result.operations:
        return (Finding(Level.PROBLEM, "The profiler saw no operation.", "Look at the trace."),)
    first = result.operations[0]
    share = first.self_s / result.total_s if result.total_s else 0.0
    found = [
        Finding(
            Level.NOTE,
            f"{first.name} takes {units.share(share)} of the time of all operations.",
        )
    ]
    idle = 1 - result.total_s / result.clock_s
    if result.device == "cuda" and idle > MANY_LAUNCHES:
        found.append(
            Finding(
                Level.PROBLEM,
                f"The GPU had nothing to do in {units.share(idle)} of the steps.",
                "Give it more at a time: a larger batch, compile=true, fused=true.",
            )
        )
    return tuple(found)
