"""The bundled loop, with torch's DataLoader and Ray Data alternating: `python -m
tests.bench.streamed DIRECTORY TURNS`, on a cluster.

Rank 0 writes to DIRECTORY/turns.txt, at the end of each turn, the loader, the examples of all ranks
and the seconds. A turn starts with nothing loaded, and the time that the DataLoader's processes and
Ray Data's stream take to start counts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from training.data.examples import Examples
from training.data.loader import Batches, Loader, Step
from training.data.sampler import Sampler
from training.data.settings import DataSettings
from training.data.streamed import Streamed, train_examples
from training.jobs.ray_data import Settings
from training.jobs.worker import work
from training.loop.recipe import part_of
from training.loop.settings import TrainSettings
from training.parallel.replicated import replicated

TURN_EPOCHS = 4
LOADERS = ("DataLoader", "Ray Data")


class InTurns:
    def __init__(self, examples: Examples, sampler: Sampler, config: dict[str, Any]) -> None:
        self._examples, self._sampler = examples, sampler
        self._settings = Settings(**config)
        self._config = config

    @property
    def steps(self) -> int:
        return self._sampler.steps

    def epoch(self, epoch: int, after: int = 0) -> Iterator[Step]:
        turn, within = divmod(epoch, TURN_EPOCHS)
        if not within:
            self._began_s = time.perf_counter()
            self._batches = self._loaded_by(LOADERS[turn % 2], (turn + 1) * TURN_EPOCHS)
        yield from self._batches.epoch(epoch, after)

    def ended(self, epoch: int) -> tuple[str, int, float] | None:
        turn, within = divmod(epoch, TURN_EPOCHS)
        if within + 1 < TURN_EPOCHS:
            return None
        examples = TURN_EPOCHS * self._sampler.examples
        return LOADERS[turn % 2], examples, time.perf_counter() - self._began_s

    def _loaded_by(self, name: str, until: int) -> Batches:
        if name == "DataLoader":
            return Loader(self._examples, self._sampler, self._settings)
        opened = partial(train_examples, part_of(DataSettings, self._config))
        return Streamed(opened, self._sampler, self._settings, until)


def train(config: dict[str, Any]) -> dict[str, Any]:
    file = (Path(config.pop("directory")) / "turns.txt").open("a", buffering=1)

    class Noted(InTurns):
        def epoch(self, epoch: int, after: int = 0) -> Iterator[Step]:
            yield from super().epoch(epoch, after)
            if self._sampler.rank == 0 and (turn := self.ended(epoch)):
                print(*turn, sep="\t", file=file)

    def feed(examples: Examples, sampler: Sampler, _: TrainSettings) -> Noted:
        return Noted(examples, sampler, config)

    return work(Settings(**config), replicated, feed=feed)


def main() -> None:
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    directory, turns = sys.argv[1], int(sys.argv[2])
    settings = Settings(
        workers=2,
        epochs=turns * TURN_EPOCHS,
        batch_size=16,
        data="imagenet",
        data_path=f"{directory}/pictures",
        shape="3x64x64",
        model="simple_cnn",
        width=16,
        loader_workers=1,
    )
    TorchTrainer(
        train,
        train_loop_config=asdict(settings) | {"directory": directory},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="bench", storage_path=f"{directory}/results"),
    ).fit()


if __name__ == "__main__":
    main()
