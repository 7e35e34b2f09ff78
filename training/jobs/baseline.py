"""One process: the baseline of all other jobs.

    python -m training.jobs.baseline --epochs 20

On a Ray cluster it uses one CPU or GPU of a node that has one free; elsewhere it does not need Ray.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from training.jobs import job
from training.jobs.plain import Plain, end, named, work
from training.loop.world import alone
from training.parallel.single_device import whole
from training.settings import parse, setting
from training.stop import Stop
from training.techniques import environment
from training.techniques.memory import OutOfMemory


@dataclass(frozen=True)
class Settings(Plain):
    workers: int = setting(
        1, "number of ranks whose batches this one process trains on", at_least=1
    )
    epochs: int = setting(20, "passes over the data")


def rank(settings: Settings) -> dict[str, Any]:
    try:
        environment.enter(settings)
        return work(settings, alone(settings.gpu), whole)
    except (Stop, OutOfMemory) as why:
        return {"stopped": str(why)}


def main() -> None:
    settings = parse(Settings, "python -m training.jobs.baseline", job("baseline").summary)
    settings = replace(settings, run_name=settings.run_name or named("baseline"))
    if "RAY_ADDRESS" in os.environ:
        from training.jobs import on_cluster

        end(on_cluster.run("baseline", settings, ranks=1))
    else:
        end(rank(settings))


if __name__ == "__main__":
    main()
