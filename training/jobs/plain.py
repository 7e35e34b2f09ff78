"""A rank that Ray Train did not start: a single process, or one of torchrun's."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from training.checkpoint.filesystem import joined, located, probe, size_bytes
from training.checkpoint.in_folder import FolderCheckpoints
from training.checkpoint.storage import RunDirectory
from training.data.examples import NoData
from training.loop.evaluate import summary
from training.loop.settings import TrainSettings, best
from training.loop.train import Parallelizer, train
from training.loop.world import World
from training.serving.publish import Candidate, publish
from training.settings import setting
from training.stop import Stop
from training.telemetry.worker.without_ray import Rank, rank_telemetry

RESULTS = "~/ray_results"
"""The default folder of runs, which Ray Train's jobs use too."""


@dataclass(frozen=True)
class Plain(TrainSettings):
    """Without Ray Train"""

    max_restarts: int = setting(3, "restarts of the ranks before the run fails", at_least=0)
    when_lacking: str = setting(
        "wait", "wait or fail if the cluster lacks resources for all workers", ("wait", "fail")
    )


def work(settings: TrainSettings, world: World, spread: Parallelizer) -> dict[str, Any]:
    """Train as a rank, with checkpoints in the run's directory. Returns the message of a Stop, or
    the loop's reason for stopping. Raises NoData if only this rank cannot read its examples: the
    others would fail for the lack of a rank that returned, and hide why.
    """
    if world.device.type == "cpu":
        torch.set_num_threads(1 if world.size > 1 else torch.get_num_threads())
    where = directory(settings)

    def finished(metrics: Mapping[str, float], checkpoint: str) -> None:
        if telemetry:
            size = size_bytes(where.filesystem, checkpoint) if checkpoint else None
            telemetry.reported(metrics, where.shown(checkpoint) if checkpoint else "", size)

    try:
        world.together(lambda: probe(settings.storage_path) if world.rank == 0 else None)
        with (
            rank_telemetry(world) as telemetry,
            FolderCheckpoints(
                where,
                world.rank,
                world.size,
                in_background=settings.checkpoint_upload == "async",
                may_start_over=settings.start_over,
                keep=settings.num_to_keep,
                best=best(settings),
                finished=finished,
            ) as checkpoints,
        ):
            result = train(settings, world, ReportedCheckpoints(checkpoints, telemetry), spread)
        if world.rank == 0 and "stopped" not in result:
            publish(settings, candidates(where, result))
    except Stop as why:
        # Before training, when all ranks check, it is no NoData: the others wait for this rank.
        if isinstance(why, NoData) and world.size > 1:
            raise
        result = {"stopped": str(why)}
    return {**result, "rank": world.rank, "folder": where.shown(where.path)}


def candidates(where: RunDirectory, result: Mapping[str, Any]) -> list[Candidate]:
    """The checkpoints that are kept, newest first; the result is that of the newest."""

    def candidate(path: str, metrics: Mapping[str, Any]) -> Candidate:
        reported = {**where.metrics(path), **metrics}
        return Candidate(path.rpartition("/")[2], reported, lambda: where.opened(path))

    paths = [path for path in where.checkpoints() if where.is_finished(path)]
    return [candidate(path, {} if number else result) for number, path in enumerate(paths)]


class ReportedCheckpoints:
    """A run's checkpoints, whose reads and writes are reported to the telemetry."""

    def __init__(self, checkpoints: FolderCheckpoints, telemetry: Rank | None) -> None:
        self._checkpoints, self._telemetry = checkpoints, telemetry

    @contextmanager
    def newest(self) -> Iterator[Path | None]:
        with (
            self._telemetry.reads() if self._telemetry else nullcontext(),
            self._checkpoints.newest() as at,
        ):
            yield at

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        if self._telemetry:
            self._telemetry.reports()
        self._checkpoints.evaluated(metrics)

    def report(self, metrics: Mapping[str, float], step: int, states: Mapping[str, Any]) -> None:
        if self._telemetry:
            self._telemetry.reports()
        self._checkpoints.report(metrics, step, states)


def named(name: str) -> str:
    """The name of a run without one."""
    return time.strftime(f"{name}-%Y%m%d-%H%M%S")


def directory(settings: TrainSettings) -> RunDirectory:
    """The directory of the run's checkpoints. Raises StorageUnusable if its address is invalid."""
    return RunDirectory(*located(joined(settings.storage_path or RESULTS, settings.run_name)))


def end(result: Mapping[str, Any]) -> None:
    """Print the result of the run as rank 0's last line. Exits with 1 if it failed or stopped
    itself.
    """
    first = result.get("rank", 0) == 0
    where = f"; its checkpoints are in {result['folder']}" if "folder" in result else ""
    for how in ("failed", "stopped"):
        if how in result:
            raise SystemExit(f"{how}: {result[how]}{where}" if first else 1)
    if not first:
        return
    if "accuracy" in result:
        print(f"{summary(result)}{where}", flush=True)
    else:
        print(f"it was finished before, after {result['step']:.0f} steps{where}", flush=True)
