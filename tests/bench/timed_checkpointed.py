"""`training.jobs.checkpointed`, with the time of each rank's steps written to a file.

Runs on the cluster: `python timed_checkpointed.py DIRECTORY WORKERS MUTE`. Every rank counts from
a different number, so that the UI's output shows whose step it is. With MUTE 1 telemetry is
disabled in every other epoch.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIRST = (900_000, 800_000)
"""By rank: what is added to its steps. The run's step is the highest, which is rank 0's."""


@dataclass(frozen=True, slots=True)
class Note:
    """A step that has ended. `checkpoint_s` before it is in the time since the one before."""

    step: int
    ended_s: float
    epoch: float
    told: bool
    checkpoint_s: float
    cpu_s: float
    """The CPU time of the rank's process, all threads of it, so far."""


def notes(directory: Path, rank: int) -> list[Note]:
    """In order; a line that is being written is left out."""
    whole = (directory / f"rank-{rank}.txt").read_text().rpartition("\n")[0]
    terms = (line.split() for line in whole.splitlines())
    return [
        Note(int(step), float(ended), float(epoch), reported == "1", float(stood), float(cpu))
        for step, ended, epoch, reported, stood, cpu in terms
    ]


def train(config: dict[str, Any]) -> dict[str, Any]:
    from ray.train import get_context

    from training import telemetry
    from training.jobs import checkpointed

    directory, without_telemetry = Path(config.pop("directory")), config.pop("mute")
    report, rank, held = telemetry.step, get_context().get_world_rank(), telemetry._rank

    def noting(**numbers: Any) -> None:
        numbers["step"] += FIRST[rank]
        reported = not without_telemetry or int(numbers["epoch"] - 1e-9) % 2 == 0
        telemetry._rank = held if reported else None  # sections are not reported then either
        if reported:
            report(**numbers)
        now, epoch, stood = time.time(), numbers["epoch"], numbers["checkpoint_s"]
        lines = numbers["step"], now, epoch, int(reported), stood, time.process_time()
        print(*lines, file=file)

    with (directory / f"rank-{rank}.txt").open("w", buffering=1) as file:
        vars(telemetry)["step"] = noting
        return checkpointed.train_on_ray(config)


def main() -> None:
    from dataclasses import asdict

    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    from training.jobs.checkpointed import Settings

    directory, workers, without_telemetry = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1"
    ray.init()
    settings = Settings(workers=workers, epochs=2_000)
    TorchTrainer(
        train,
        train_loop_config=asdict(settings) | {"directory": directory, "mute": without_telemetry},
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(name="bench", storage_path=f"{directory}/results"),
    ).fit()


if __name__ == "__main__":
    main()
