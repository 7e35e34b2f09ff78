"""DDP on Ray Train with the available number of workers, between a minimum and a maximum.

    python -m training.jobs.elastic --min-workers 1 --workers 4

A run that loses a worker continues with the remaining ones, and adds it again when it returns: each
time as a new attempt, from the newest checkpoint. The result is the same. A step has the examples
that it would have with all workers, so the batch and the learning rate do not change: fewer workers
have more examples each, and a step takes longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from training.jobs import job
from training.jobs.fit import Elastic, fit
from training.jobs.worker import work
from training.parallel.replicated import replicated
from training.settings import parse, setting


@dataclass(frozen=True)
class Settings(Elastic):
    workers: int = setting(
        4, "maximum number of training workers (ranks), one CPU or GPU each", at_least=1
    )
    min_workers: int = setting(
        1, "minimum number to start and continue with; 0: not elastic", at_least=0
    )
    epochs: int = setting(20, "passes over the data")


def train_on_ray(config: dict[str, Any]) -> dict[str, Any]:
    import ray.train

    settings, context = Settings(**config), ray.train.get_context()
    if context.get_world_rank() == 0:
        print(shared(settings, context.get_world_size()), flush=True)
    return work(settings, replicated)


def shared(settings: Settings, size: int) -> str:
    """The batch size and learning rate with this number of workers, as text."""
    examples = settings.batch_size * settings.accumulate * settings.workers
    text = f"{size} of {settings.workers} workers: a step has up to {examples} examples"
    if size == settings.workers:
        return f"{text}, {settings.batch_size} a micro-batch of each"
    most = -(-settings.batch_size * settings.workers // size)
    return (
        f"{text} as with all of them, up to {most} instead of {settings.batch_size} a micro-batch "
        f"of each, and the learning rate stays as it is"
    )


def main() -> None:
    settings = parse(Settings, "python -m training.jobs.elastic", job("elastic").summary)
    fit(train_on_ray, settings, "elastic")


if __name__ == "__main__":
    main()
