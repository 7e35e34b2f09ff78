"""The parts, in order: the ranks measure them, and the owner of the results reports them."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from training.bench import (
    batches,
    communication,
    environment,
    launchers,
    loading,
    saving,
    scaling,
    targets,
    techniques,
    tracing,
)
from training.bench.record import decode
from training.bench.section import Section
from training.bench.settings import BenchSettings
from training.loop.world import World
from training.stop import Stop

SO_FAR = "so-far.json"
"""The results so far, in the folder of a run that has not ended, or was interrupted."""
ENVIRONMENT, LAUNCHERS = "environment", "launchers"


@dataclass(frozen=True)
class Part:
    name: str
    result: type[Any]
    section: Callable[[Any], Section]
    measure: Callable[[World, BenchSettings, Path], Any] | None
    """Run by the ranks of a world; None if the driver measures it."""
    alone: bool = False
    """Run by rank 0 only, while the others wait."""


def without_files(
    measure: Callable[[World, BenchSettings], Any],
) -> Callable[[World, BenchSettings, Path], Any]:
    """As a part that writes no files of its own."""
    return lambda world, settings, folder: measure(world, settings)


PARTS = (
    Part(
        ENVIRONMENT,
        environment.Environment,
        environment.section,
        without_files(environment.measure),
    ),
    Part(
        "scaling",
        scaling.Scaling,
        scaling.section,
        without_files(scaling.measure),
    ),
    Part(
        "communication",
        communication.Communication,
        communication.section,
        without_files(communication.measure),
    ),
    Part(
        "data",
        loading.Loading,
        loading.section,
        without_files(loading.measure),
        alone=True,
    ),
    Part("checkpoints", saving.Saving, saving.section, saving.measure),
    Part(
        "techniques",
        techniques.Techniques,
        techniques.section,
        without_files(techniques.measure),
    ),
    Part(
        "batches",
        batches.Batches,
        batches.section,
        without_files(batches.measure),
        alone=True,
    ),
    Part("profile", tracing.Traced, tracing.section, tracing.measure, alone=True),
    Part(
        "targets",
        targets.Targets,
        targets.section,
        without_files(targets.measure),
        alone=True,
    ),
    Part(LAUNCHERS, launchers.Launchers, launchers.section, None),
)


@dataclass(frozen=True)
class Measured:
    parts: Mapping[str, Mapping[str, Any]]
    """By part, its result as a dict."""
    failed: Mapping[str, str]


def chosen(what: str) -> list[str]:
    """The names of the requested parts; the environment is always reported.

    Raises ValueError for an unknown name.
    """
    names = [part.name for part in PARTS]
    asked = names if what == "all" else [text.strip() for text in what.split(",") if text.strip()]
    if odd := [name for name in asked if name not in names]:
        raise ValueError(f"there is no part {', '.join(odd)}; there are {', '.join(names)}")
    return [name for name in names if name in asked or name == ENVIRONMENT]


def by_ranks(world: World, settings: BenchSettings, folder: Path) -> Measured:
    """Run the parts that the ranks measure, on all of them; the results are on rank 0.

    After a part fails the others still run, unless it failed on some ranks only, during a
    collective.
    """
    os.environ.pop("MLFLOW_TRACKING_URI", None)  # no separate run for each loop
    own = settings.for_this_run()
    folder.mkdir(parents=True, exist_ok=True)
    if world.device.type == "cpu":
        torch.set_num_threads(own.cores_each)  # as the jobs do, whose ranks share a host
    parts: dict[str, Mapping[str, Any]] = {}
    failed: dict[str, str] = {}
    for part in PARTS:
        if part.measure is None or part.name not in chosen(settings.what):
            continue
        began, why = time.monotonic(), ""
        try:
            if not part.alone:
                parts[part.name] = asdict(part.measure(world, own, folder))
            elif world.rank == 0:
                alone = World(0, 1, world.local_rank, world.device)
                parts[part.name] = asdict(part.measure(alone, own, folder))
        except Exception as error:  # noqa: BLE001 - reported with the results, and in the exit code
            why = " ".join(str(error).split())
            if not isinstance(error, Stop):
                traceback.print_exc()
                why = f"{type(error).__name__}: {why}"
        if whys := _everyones(why, world):
            failed[part.name] = whys[0]
            parts.pop(part.name, None)
        if world.rank == 0:
            took = f"{time.monotonic() - began:.1f} s"
            print(f"{part.name}: {whys[0] if whys else took}", flush=True)
            (folder / SO_FAR).write_text(json.dumps({"parts": parts, "failed": failed}))
    return Measured(parts, failed)


def _everyones(why: str, world: World) -> list[str]:
    """Why a part failed, if it did; a barrier."""
    every: list[Any] = [None] * world.size
    dist.all_gather_object(every, why)
    return [item for item in every if item]


def sections(parts: Mapping[str, Any]) -> dict[str, Section]:
    """The sections, from results as JSON, by part. Raises Unreadable."""
    found = {}
    for part in PARTS:
        if part.name in parts:
            found[part.name] = part.section(decode(part.result, parts[part.name]))
    return found
