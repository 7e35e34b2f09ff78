"""The effect of each technique on throughput, as a ratio to the same training without it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from training.bench import units
from training.bench.cpu_affinity import own_cores
from training.bench.loop import Loop, in_turn, same_step
from training.bench.repeated import Quartiles, ratios, spread
from training.bench.section import Finding, Level, Section, Table
from training.bench.settings import BenchSettings
from training.data import load
from training.loop.world import World
from training.parallel.replicated import replicated

PLAIN = "plain"
FASTER, SLOWER = 1.05, 0.98
"""Ratios above which a technique is recommended, and below which it costs."""


@dataclass(frozen=True, slots=True)
class Technique:
    name: str
    samples_per_s: Quartiles
    ratio: Quartiles
    """Examples per second with and without it, as a ratio, for each turn."""


@dataclass(frozen=True, slots=True)
class UnavailableTechnique:
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Techniques:
    model: str
    device: str
    ranks: int
    batch_size: int
    techniques: tuple[Technique, ...]
    refused: tuple[UnavailableTechnique, ...]


def changes(settings: BenchSettings, device: str) -> dict[str, dict[str, Any]]:
    """The changes of each technique to the settings."""
    found: dict[str, dict[str, Any]] = {
        PLAIN: {},
        "bf16": {"precision": "bf16"},
        "accumulate 4": {"accumulate": 4},
        "channels_last": {"channels_last": True},
        "fused optimiser": {"fused": True},
        "activation checkpointing": {"activation_checkpointing": True},
        "gradients in bf16": {"comm_hook": "bf16"},
    }
    if device == "cuda":
        found |= {"tf32": {"precision": "tf32"}, "fp16": {"precision": "fp16"}}
    if not settings.quick:
        found |= {"compile": {"compile": True}}
    return found


def measure(world: World, settings: BenchSettings) -> Techniques:
    """Call on all ranks. All start from plain fp32 with the batch size of the settings."""
    data = load(settings)
    plain = replace(
        settings,
        precision="fp32",
        accumulate=1,
        channels_last=False,
        fused=False,
        activation_checkpointing=False,
        compile=False,
        comm_hook="none",
    )
    refused: list[UnavailableTechnique] = []
    loops: dict[str, tuple[Loop, int]] = {}
    with ExitStack() as held:
        if world.device.type == "cpu":
            held.enter_context(own_cores(world, settings.cores_each))
        for name, changed in changes(settings, world.device.type).items():
            own = replace(plain, **changed)
            steps = max(1, settings.turn_steps // own.accumulate)
            try:
                loop = Loop(own, world, replicated, data, same_step(own, world, data))
                held.enter_context(loop)
                loop.turn(2)  # compiles
            except (RuntimeError, ValueError) as error:  # including a Stop: it is not available
                refused.append(
                    UnavailableTechnique(name, (str(error) or repr(error)).splitlines()[0][:200])
                )
                continue
            loops[name] = loop, steps
        rates: dict[str, list[float]] = {name: [] for name in loops}
        for turn in range(settings.rounds + 1):
            for name, (loop, steps) in in_turn(loops.items(), turn):
                world.wait()
                took_s = loop.turn(steps)
                examples = steps * loop.examples
                if turn:
                    rates[name].append(examples / took_s)
        world.wait()
    return Techniques(
        settings.model,
        world.device.type,
        world.size,
        settings.batch_size,
        tuple(
            Technique(name, spread(found), ratios(found, rates[PLAIN]))
            for name, found in rates.items()
        ),
        tuple(refused),
    )


def section(result: Techniques) -> Section:
    rows = [
        (
            item.name,
            item.samples_per_s.text(units.rate),
            item.ratio.text(units.ratio),
        )
        for item in result.techniques
    ]
    rows += [(item.name, "not here", item.why) for item in result.refused]
    return Section(
        "Techniques",
        f"{result.model} on {result.device}, {result.ranks} ranks with DDP, batches of "
        f"{result.batch_size}, each technique alone against plain fp32, alternating; ratios are of "
        "each pair of turns, medians (quartiles).",
        (Table(("technique", "examples", "÷ plain"), tuple(rows)),),
        (),
        findings(result),
    )


def findings(result: Techniques) -> tuple[Finding, ...]:
    found = []
    for item in result.techniques:
        times = f"{item.name} is {item.ratio.median:.2f} times as fast as plain fp32"
        if item.name == PLAIN:
            continue
        if item.ratio.low >= FASTER:
            found.append(Finding(Level.NOTE, f"{times}.", f"Switch {item.name} on."))
        elif item.ratio.high <= SLOWER and item.name == "activation checkpointing":
            found.append(Finding(Level.NOTE, f"{times}: the price of its memory."))
        elif item.ratio.high <= SLOWER:
            where = f"{result.device} with batches of {result.batch_size}"
            found.append(
                Finding(Level.NOTE, f"{times}.", f"Leave {item.name} off on this {where}.")
            )
    found += [Finding(Level.NOTE, f"{item.name} is not available here.") for item in result.refused]
    return tuple(found)
