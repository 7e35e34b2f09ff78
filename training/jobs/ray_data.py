"""DDP on Ray Train, with the examples loaded by Ray Data and streamed to the ranks.

    python -m training.jobs.ray_data --workers 2 --data cifar10 --data-path /data

Ray Data's tasks load and augment each rank's examples, on the rank's node or, with `--loader-cpus`,
on any node with free CPUs. The results are the same as with the DataLoader.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from training.data.examples import Examples
from training.data.sampler import Sampler
from training.data.settings import INDEXED, DataSettings
from training.data.streamed import Streamed, StreamSettings, train_examples
from training.jobs import job
from training.jobs.fit import OnRay, fit
from training.jobs.worker import work
from training.loop.recipe import part_of
from training.loop.settings import TrainSettings
from training.parallel.replicated import replicated
from training.settings import parse, setting


@dataclass(frozen=True)
class Settings(StreamSettings, OnRay):
    epochs: int = setting(20, "passes over the data")


def train_on_ray(config: dict[str, Any]) -> dict[str, Any]:
    settings = Settings(**config)

    def streamed(examples: Examples, sampler: Sampler, _: TrainSettings) -> Streamed:
        """Each task opens the data set separately, as each rank does, except one with an index:
        the task receives that of its rank, and reads no headers.
        """
        if settings.data in INDEXED:
            return Streamed(lambda: examples, sampler, settings, settings.epochs)
        opened = partial(train_examples, part_of(DataSettings, config))
        return Streamed(opened, sampler, settings, settings.epochs)

    return work(settings, replicated, feed=streamed)


def main() -> None:
    settings = parse(Settings, "python -m training.jobs.ray_data", job("ray_data").summary)
    fit(train_on_ray, settings, "ray_data")


if __name__ == "__main__":
    main()
