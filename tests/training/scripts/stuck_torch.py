"""Steps with an all_reduce and a checkpoint every second; one rank is stuck once if a file asks so.

python stuck_torch.py DIRECTORY    rank 1 sleeps for an hour when DIRECTORY/stick appears
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray.train
import torch
import torch.distributed as dist
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

STEP_S = 0.1
SAVE_EVERY = 10


def stuck(stick: Path) -> None:
    """The file is removed first: the next attempt is not stuck."""
    stick.unlink()
    time.sleep(3600.0)


def loop(config: dict[str, Any]) -> None:
    rank, step = ray.train.get_context().get_world_rank(), 0
    stick = Path(config["directory"]) / "stick"
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            step = int((Path(directory) / "step").read_text())
    while True:
        time.sleep(STEP_S)
        if rank == 1 and stick.exists():
            stuck(stick)
        dist.all_reduce(torch.ones(1024))
        step += 1
        if step % SAVE_EVERY == 0:
            with tempfile.TemporaryDirectory() as directory:
                (Path(directory) / "step").write_text(str(step))
                saved = Checkpoint.from_directory(directory) if rank == 0 else None
                ray.train.report({"step": step}, checkpoint=saved)


if __name__ == "__main__":
    TorchTrainer(
        loop,
        train_loop_config={"directory": sys.argv[1]},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name="stuck", storage_path=sys.argv[1], failure_config=FailureConfig(max_failures=20)
        ),
    ).fit()
