"""Fail in a selected way, as a user's script without cockpit.

`fails.py train NAME…` runs one Ray Train run of 2 ranks for each name and survives its failure;
`fails.py driver NAME` fails as a driver without ranks.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path


def raise_exception() -> None:
    raise ValueError("batch 12 has 3 columns, not 4")


def import_missing() -> None:
    importlib.import_module("flash_attn_of_nobody")


def read_missing_data() -> None:
    Path("/data/of/nobody/train.bin").read_bytes()


def read_damaged_checkpoint() -> None:
    import torch

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.pt"
        torch.save({"weight": torch.zeros(1000)}, path)
        path.write_bytes(path.read_bytes()[:2000])
        torch.load(path, weights_only=True)


def load_other_model() -> None:
    import torch

    torch.nn.Linear(8, 4).load_state_dict(torch.nn.Linear(8, 2).state_dict())


def multiply_wrong_shapes() -> None:
    import torch

    torch.nn.Linear(64, 10)(torch.zeros(32, 128))


def diverge() -> None:
    loss = float("inf") - float("inf")
    if loss != loss:
        raise RuntimeError(f"loss is {loss} at step 312")


def fill_disk() -> None:
    with Path("/dev/full").open("wb") as file:
        file.write(b"0" * 100_000)


def use_cuda() -> None:
    import torch

    torch.zeros(1, device="cuda")


def ask_for_memory() -> None:
    import numpy

    numpy.zeros(1 << 50, dtype=numpy.int8).fill(1)


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash() -> None:
    ctypes.string_at(0)


def exit_itself() -> None:
    os._exit(3)


ON_RANK_1: dict[str, Callable[[], None]] = {
    "exception": raise_exception,
    "import": import_missing,
    "missing-data": read_missing_data,
    "bad-checkpoint": read_damaged_checkpoint,
    "state-dict": load_other_model,
    "shape": multiply_wrong_shapes,
    "nan": diverge,
    "full-disk": fill_disk,
    "no-cuda": use_cuda,
    "memory": ask_for_memory,
    "killed": kill_itself,
    "crash": crash,
    "exit": exit_itself,
}
ENDS_OF_PROCESS = ("killed", "crash", "exit")
TIMEOUT_S = 5.0


def train(name: str) -> None:
    """Rank 0 waits in a collective for rank 1, which fails; in `timeout`, it never joins."""
    from datetime import timedelta

    import ray.train
    import torch
    import torch.distributed

    rank = ray.train.get_context().get_world_rank()
    if name in ENDS_OF_PROCESS:
        time.sleep(3)  # Ray Train restarts a group whose rank dies during its start
    if rank == 1 and name in ON_RANK_1:
        ON_RANK_1[name]()
    if rank == 1 and name == "timeout":
        time.sleep(4 * TIMEOUT_S)
    group = torch.distributed.new_group(timeout=timedelta(seconds=TIMEOUT_S), ranks=[0, 1])
    assert isinstance(group, torch.distributed.ProcessGroup)
    torch.distributed.all_reduce(torch.zeros(4), group=group)


def run_train(names: list[str]) -> None:
    import ray.train
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    for name in names:
        with tempfile.TemporaryDirectory() as storage:
            trainer = TorchTrainer(
                lambda config: train(config["name"]),
                train_loop_config={"name": name},
                torch_config=TorchConfig(backend="gloo"),
                scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
                run_config=RunConfig(name=name, storage_path=storage),
            )
            try:
                trainer.fit()
            except ray.train.TrainingFailedError as error:
                print(f"{name}: {type(error).__name__}", flush=True)


def run_driver(name: str) -> None:
    if name == "argument":
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float)
        parser.parse_args(["--lrr", "1"])
    elif name == "sleep":
        time.sleep(600)
    else:
        ON_RANK_1[name]()


if __name__ == "__main__":
    kind, *names = sys.argv[1:]
    if kind == "train":
        run_train(names)
    else:
        run_driver(names[0])
