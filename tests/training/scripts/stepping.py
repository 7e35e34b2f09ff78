"""Steps at a known pace that each rank also writes down by itself, with the time on its clock.

python stepping.py DIRECTORY    what is written down, and checkpoints
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray.train
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.collective import barrier
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from training import telemetry

STEP_S = 0.05
SAVE_EVERY = 40


def loop(config: dict[str, Any]) -> None:
    rank = ray.train.get_context().get_world_rank()
    path = Path(config["directory"]) / f"rank-{rank}-{os.getpid()}.jsonl"
    with path.open("a", buffering=1) as written:

        def write(what: str, step: int) -> None:
            print(json.dumps([what, step, time.time()]), file=written)

        step = 0
        checkpoint = ray.train.get_checkpoint()
        if checkpoint is not None:
            with checkpoint.as_directory() as directory:
                step = int((Path(directory) / "step").read_text())
            write("restored", step)
            telemetry.resume(step=step)
        # As the first collective of a training step: no rank makes a step while rank 0 still reads.
        barrier()
        while True:
            time.sleep(STEP_S)
            step += 1
            telemetry.step(loss=1.0 + 1.0 / step, samples=8)
            write("step", step)
            if step % SAVE_EVERY == 0:
                save(step, rank)


def save(step: int, rank: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "step").write_text(str(step))
        checkpoint = Checkpoint.from_directory(directory) if rank == 0 else None
        ray.train.report({"step": step}, checkpoint=checkpoint)


if __name__ == "__main__":
    DataParallelTrainer(
        loop,
        train_loop_config={"directory": sys.argv[1]},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name="stepping", storage_path=sys.argv[1], failure_config=FailureConfig(max_failures=5)
        ),
    ).fit()
