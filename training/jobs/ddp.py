"""DDP on Ray Train, the simplest of its jobs: a checkpoint at the end of each epoch.

    python -m training.jobs.ddp --workers 2 --epochs 20

Ray Train starts the ranks, creates their process group, and restarts them when one dies. The
training loop is the same as under torchrun (`training.jobs.ddp_torchrun`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from training.jobs import job
from training.jobs.fit import OnRay, fit
from training.jobs.worker import work
from training.parallel.replicated import replicated
from training.settings import parse, setting


@dataclass(frozen=True)
class Settings(OnRay):
    epochs: int = setting(20, "passes over the data")


def train_on_ray(config: dict[str, Any]) -> dict[str, Any]:
    return work(Settings(**config), replicated)


def main() -> None:
    settings = parse(Settings, "python -m training.jobs.ddp", job("ddp").summary)
    fit(train_on_ray, settings, "ddp")


if __name__ == "__main__":
    main()
