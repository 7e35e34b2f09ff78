"""The bundled job with checkpoints alternating between background, synchronous and none:

`python -m tests.bench.stalled DIRECTORY EPOCHS WIDTH BATCH_SIZE`, on a cluster. At the end of each
epoch, rank 0 writes to DIRECTORY/epochs.txt the mode, the duration of the report, and the duration
of the epoch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

TURNS = ("none", "async", "sync")
TURN_EPOCHS = 5


def turn(epoch: int) -> str:
    return TURNS[epoch // TURN_EPOCHS % len(TURNS)]


def train(config: dict[str, Any]) -> dict[str, Any]:
    import torch

    from training.checkpoint.on_ray import RunCheckpoints
    from training.jobs.checkpointed import Settings
    from training.loop import train as loop
    from training.loop.world import on_ray
    from training.parallel.replicated import replicated

    directory = Path(config.pop("directory"))
    torch.set_num_threads(1)
    world = on_ray()

    class InTurns(RunCheckpoints):
        def __init__(self) -> None:
            super().__init__(in_background=True, may_start_over=False)
            self._waited_for = RunCheckpoints(in_background=False, may_start_over=False)
            self._ended_s = time.perf_counter()
            self._file = (directory / "epochs.txt").open("w", buffering=1)

        def report(
            self, metrics: Mapping[str, float], step: int, states: Mapping[str, Any]
        ) -> None:
            began_s, now = time.perf_counter(), turn(round(metrics["epoch"]) - 1)
            if now == "async":
                super().report(metrics, step, states)
            elif now == "sync":
                self._waited_for.report(metrics, step, states)
            ended_s = time.perf_counter()
            if world.rank == 0:
                print(now, ended_s - began_s, ended_s - self._ended_s, file=self._file)
            self._ended_s = ended_s

    return loop.train(Settings(**config), world, InTurns(), replicated)


def main() -> None:
    from ray.train import CheckpointConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    from training.jobs.checkpointed import Settings

    directory, epochs, width, batch_size = sys.argv[1], *map(int, sys.argv[2:])
    settings = Settings(workers=2, epochs=epochs, width=width, batch_size=batch_size)
    TorchTrainer(
        train,
        train_loop_config=asdict(settings) | {"directory": directory},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name="bench",
            storage_path=f"{directory}/results",
            checkpoint_config=CheckpointConfig(num_to_keep=3),
        ),
    ).fit()


if __name__ == "__main__":
    main()
