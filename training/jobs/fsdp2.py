"""FSDP2 on Ray Train: each rank has a part of every weight, gradient and optimiser state.

    python -m training.jobs.fsdp2 --workers 2 --shards 2 --checkpoint-form sharded

A run resumes with any number of workers, independent of the number that wrote its newest
checkpoint; a checkpoint of the form `full` is one of the ddp jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from training.data.settings import SOURCES
from training.jobs import job
from training.jobs.fit import Elastic, check_losses, fit
from training.jobs.worker import work
from training.models.settings import FOR_IMAGES, FOR_TOKENS
from training.parallel.settings import ShardSettings
from training.settings import parse, setting


@dataclass(frozen=True)
class Settings(ShardSettings, Elastic):
    model: str = setting(
        "gpt-tiny", "model; gpt is for tokens, the others for images", FOR_IMAGES + FOR_TOKENS
    )
    data: str = setting("synthetic-tokens", "data set", SOURCES)
    examples: int = setting(2048, "synthetic data: examples in an epoch")
    epochs: int = setting(3, "passes over the data")


def train_on_ray(config: dict[str, Any]) -> dict[str, Any]:
    from training.parallel.sharded import Sharded

    settings = Settings(**config)
    return work(settings, partial(Sharded, sharding=settings))


def main() -> None:
    settings = parse(Settings, "python -m training.jobs.fsdp2", job("fsdp2").summary)
    least = settings.min_workers or settings.workers
    check_losses("shards", settings.shards, least, settings.workers)
    fit(train_on_ray, settings, "fsdp2")


if __name__ == "__main__":
    main()
