"""DDP on Ray Train, with checkpoints within an epoch that resume exactly.

    python -m training.jobs.checkpointed --workers 2 --epochs 60

The job for drills: after a rank, a worker or the whole run is killed, it resumes from its newest
checkpoint with the same numbers as an uninterrupted run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from training.jobs import job
from training.jobs.fit import Elastic, fit
from training.jobs.worker import work
from training.parallel.replicated import replicated
from training.settings import parse


@dataclass(frozen=True)
class Settings(Elastic):
    pass


def train_on_ray(config: dict[str, Any]) -> dict[str, Any]:
    return work(Settings(**config), replicated)


def main() -> None:
    settings = parse(Settings, "python -m training.jobs.checkpointed", job("checkpointed").summary)
    fit(train_on_ray, settings, "checkpointed")


if __name__ == "__main__":
    main()
