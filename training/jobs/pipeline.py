"""A pipeline on Ray Train: each rank has some of the model's blocks.

    python -m training.jobs.pipeline --workers 2 --pipeline 1f1b --accumulate 4

Each of the `accumulate` micro-batches of a step passes through all ranks; the more there are, the
less a rank waits for the others. A run can resume with another number of stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from training.data.settings import SOURCES
from training.jobs import job
from training.jobs.fit import OnRay, fit
from training.jobs.worker import work
from training.models.settings import FOR_IMAGES, FOR_TOKENS
from training.parallel.settings import PipelineSettings
from training.settings import parse, setting


@dataclass(frozen=True)
class Settings(PipelineSettings, OnRay):
    workers: int = setting(2, "number of pipeline stages, one CPU or GPU each", at_least=1)
    model: str = setting(
        "gpt-tiny", "model; gpt is for tokens, the others for images", FOR_IMAGES + FOR_TOKENS
    )
    data: str = setting("synthetic-tokens", "data set", SOURCES)
    examples: int = setting(2048, "synthetic data: examples in an epoch")
    epochs: int = setting(3, "passes over the data")
    accumulate: int = setting(4, "micro-batches of a step, which are pipelined", at_least=1)


def train_on_ray(config: dict[str, Any]) -> dict[str, Any]:
    from training.parallel.pipelined import Pipelined

    settings = Settings(**config)
    return work(settings, partial(Pipelined, pipeline=settings))


def main() -> None:
    settings = parse(Settings, "python -m training.jobs.pipeline", job("pipeline").summary)
    fit(train_on_ray, settings, "pipeline")


if __name__ == "__main__":
    main()
