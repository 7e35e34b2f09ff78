"""A Ray Train script as in its documentation, without cockpit."""

import argparse
import tempfile
from typing import Any

import ray.train
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train_loop_per_worker(config: dict[str, Any]) -> None:
    model = prepare_model(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    start = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            state = torch.load(f"{directory}/state.pt", weights_only=True)
        model.load_state_dict(state["model"])
        start = state["epoch"] + 1
    features = torch.randn(256, 8)
    data = TensorDataset(features, features.sum(1, keepdim=True))
    loader = prepare_data_loader(DataLoader(data, batch_size=32))
    for epoch in range(start, config["epochs"]):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        rank = ray.train.get_context().get_world_rank()
        metrics = {"loss": loss.item(), "epoch": epoch, "rank": rank}
        with tempfile.TemporaryDirectory() as directory:
            if rank == 0:
                state = {"model": model.state_dict(), "epoch": epoch}
                torch.save(state, f"{directory}/state.pt")
                ray.train.report(metrics, checkpoint=Checkpoint.from_directory(directory))
            else:
                ray.train.report(metrics)
        # A failure that the documentation omits: the driver may be killed here.
        if epoch == config["fail_at"] and start == 0:
            raise RuntimeError("a bad batch")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--storage-path")
    parser.add_argument("--name")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--fail-at", type=int, default=-1)
    parser.add_argument("--max-failures", type=int, default=1)
    args = parser.parse_args()
    trainer = TorchTrainer(
        train_loop_per_worker,
        train_loop_config={"lr": 0.05, "epochs": args.epochs, "fail_at": args.fail_at},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name=args.name,
            storage_path=args.storage_path,
            failure_config=FailureConfig(max_failures=args.max_failures),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    )
    print(trainer.fit().metrics)
