"""Loading only, computing only, and both: the bottleneck of a step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

from training.bench import units
from training.bench.loop import Loop, loaded_steps, same_step
from training.bench.repeated import Quartiles, ratios, spread
from training.bench.section import Finding, Level, Section, Table
from training.bench.settings import BenchSettings
from training.data import load
from training.data.examples import Data
from training.data.loader import Step
from training.loop.world import World
from training.parallel.single_device import whole

INPUT_BOUND = 0.05
"""The share of a step that may be spent on its data."""


@dataclass(frozen=True, slots=True)
class LoaderTimes:
    loader_workers: int
    load_s: Quartiles
    """Only loading a step's batches."""
    both_s: Quartiles
    """A step that loads and computes."""
    computing: Quartiles
    """The time of a step whose batch is in memory, divided by the former, for each turn."""

    @property
    def input_share(self) -> float:
        """The share of a step that is spent on its data."""
        return max(0.0, 1 - self.computing.median)


@dataclass(frozen=True, slots=True)
class Loading:
    data: str
    model: str
    device: str
    batch_size: int
    compute_s: Quartiles
    """A step whose batch is in memory."""
    ways: tuple[LoaderTimes, ...]


def measure(world: World, settings: BenchSettings) -> Loading:
    """Measure on one rank."""
    data = load(settings)
    helpers = sorted({0, settings.loader_workers, *(() if settings.quick else (2,))})
    own = {count: replace(settings, loader_workers=count) for count in helpers}
    computing: list[float] = []
    loading: dict[int, list[float]] = {count: [] for count in helpers}
    both: dict[int, list[float]] = {count: [] for count in helpers}
    with ExitStack() as held:
        alone = held.enter_context(
            Loop(settings, world, whole, data, same_step(settings, world, data))
        )
        loaders = {count: loaded_steps(own[count], world, data) for count in helpers}
        loops = {
            count: held.enter_context(
                Loop(own[count], world, whole, data, loaded_steps(own[count], world, data))
            )
            for count in helpers
        }
        for turn in range(settings.rounds + 1):
            took_s = alone.turn(settings.turn_steps)
            load_s = {c: drained(loaders[c], settings.turn_steps) for c in helpers}
            both_s = {c: loops[c].turn(settings.turn_steps) for c in helpers}
            if turn:
                computing.append(took_s / settings.turn_steps)
                for count in helpers:
                    loading[count].append(load_s[count] / settings.turn_steps)
                    both[count].append(both_s[count] / settings.turn_steps)
    return Loading(
        name(data),
        settings.model,
        world.device.type,
        settings.batch_size,
        spread(computing),
        tuple(
            LoaderTimes(
                count,
                spread(loading[count]),
                spread(both[count]),
                ratios(computing, both[count]),
            )
            for count in helpers
        ),
    )


def drained(steps: Iterator[Step], turn_steps: int) -> float:
    """Seconds until the batches of this number of steps were loaded."""
    began = time.perf_counter()
    for _ in range(turn_steps):
        for _ in next(steps).micro_batches:
            pass
    return time.perf_counter() - began


def name(data: Data) -> str:
    return f"{data.name} of {'x'.join(map(str, data.shape))}"


def section(result: Loading) -> Section:
    rows = tuple(
        (
            str(way.loader_workers),
            way.load_s.text(units.seconds),
            result.compute_s.text(units.seconds),
            way.both_s.text(units.seconds),
            units.share(way.input_share),
            "loading" if way.load_s.median > result.compute_s.median else "computing",
        )
        for way in result.ways
    )
    columns = ("loader workers", "loading", "computing", "both", "input-bound", "longer")
    return Section(
        "Data",
        f"{result.data}, batches of {result.batch_size}, {result.model} on {result.device}, one "
        "rank; seconds a step, alternating, medians (quartiles). Input-bound is the share of a "
        "step that it takes longer than with its batch at hand.",
        (Table(columns, rows),),
        (),
        findings(result),
    )


def findings(result: Loading) -> tuple[Finding, ...]:
    best = min(result.ways, key=lambda way: way.both_s.median)
    share = best.input_share
    text = (
        f"With {best.loader_workers} loader workers {units.share(share)} of a step is there for "
        "its data"
    )
    if share <= INPUT_BOUND:
        return (Finding(Level.GOOD, f"{text}."),)
    if best.load_s.median > result.compute_s.median:
        advice = "Loading is slower than computing: more loader_workers, or smaller examples."
    else:
        advice = "Loading could be hidden: loader_workers above 0, more prefetch, pin_memory=true."
    return (Finding(Level.PROBLEM, f"{text}.", advice),)
