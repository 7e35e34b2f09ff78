"""A trial that trains in its own process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]
from ray import tune

from training.checkpoint.rank_part import write
from training.checkpoint.restore import NoUsableCheckpoint, newest_whole
from training.checkpoint.storage import RunDirectory
from training.loop.settings import TrainSettings
from training.loop.train import train
from training.loop.world import alone
from training.parallel.single_device import whole
from training.search.trial_telemetry import reporting


class TrialCheckpoints:
    """Tune keeps them, and selects the one to resume from: the trial's own, or that of another
    trial whose weights it adopts.
    """

    def __init__(self, *, may_start_over: bool) -> None:
        self._may_start_over = may_start_over
        self._from = ""

    @contextmanager
    def newest(self) -> Iterator[Path | None]:
        """Raises NoUsableCheckpoint if Tune's is damaged or missing, and no other is left.

        A search that was killed may refer to an older one than the trial has kept.
        """
        given = tune.get_checkpoint()
        if given is None:
            yield None
            return
        storage = tune.get_context().get_storage()
        own = RunDirectory(storage.storage_filesystem, storage.trial_fs_path)
        is_own = given.path.rpartition("/")[0] == own.path
        others = [path for path in own.checkpoints() if path != given.path] if is_own else []

        def opened(path: str) -> AbstractContextManager[str]:
            found: AbstractContextManager[str] = tune.Checkpoint(
                path, storage.storage_filesystem
            ).as_directory()
            return found

        def unused(path: str, why: str) -> None:
            print(f"{path} is not used: {why}", flush=True)

        with newest_whole([given.path, *others], opened, unused) as whole_one:
            if whole_one is None and not self._may_start_over:
                raise NoUsableCheckpoint(f"cannot resume from {given.path}")
            self._from = whole_one.path if whole_one else ""
            yield Path(whole_one.directory) if whole_one else None

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        """Tune decides by results with a checkpoint only: it could not resume from another one."""

    def report(self, metrics: Mapping[str, float], step: int, states: Mapping[str, Any]) -> None:
        """Tune copies the files to the storage, and evaluates the result before it returns. It may
        not return: a trial that is stopped or paused ends here.
        """
        with TemporaryDirectory() as directory:
            write(LocalFileSystem(), directory, states, rank=0, world_size=1, step=step)
            tune.report(
                {**metrics, "resumed_from": self._from},
                checkpoint=tune.Checkpoint.from_directory(directory),
            )


def train_alone(settings: TrainSettings, environment: Mapping[str, str]) -> dict[str, Any]:
    world = alone(settings.gpu)
    if world.device.type == "cpu":
        torch.set_num_threads(1)  # trials that share a host would use each other's cores
    checkpoints = TrialCheckpoints(may_start_over=settings.start_over)
    with reporting(settings.run_name, environment):
        return train(settings, world, checkpoints, whole)
