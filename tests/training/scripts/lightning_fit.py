"""A Lightning script on Ray Train as in its documentation, without cockpit."""

import argparse
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import ray.train
import ray.train.lightning
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        x, y = batch
        loss = nn.functional.mse_loss(self.layer(x), y)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05)


class FailOnce(pl.Callback):
    """Some node is always bad."""

    def __init__(self) -> None:
        self.is_first = ray.train.get_checkpoint() is None

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.current_epoch == 1 and self.is_first:
            raise RuntimeError("a bad node")


class Stick(pl.Callback):
    """A rank that waits forever once a file appears."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_rank == 1 and self.file.exists():
            stuck()


def stuck() -> None:
    time.sleep(3600.0)


def train_loop_per_worker(config: dict[str, Any]) -> None:
    features = torch.randn(256, 8)
    data = TensorDataset(features, features.sum(1, keepdim=True))
    trainer = pl.Trainer(
        max_epochs=config["epochs"],
        accelerator="cpu",
        devices="auto",
        strategy=ray.train.lightning.RayDDPStrategy(),
        plugins=[ray.train.lightning.RayLightningEnvironment()],
        callbacks=[
            ray.train.lightning.RayTrainReportCallback(),
            Stick(Path(config["stick"])) if config["stick"] else FailOnce(),
        ],
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
    )
    trainer = ray.train.lightning.prepare_trainer(trainer)
    loader = DataLoader(data, batch_size=32)
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            trainer.fit(Regression(), loader, ckpt_path=f"{directory}/checkpoint.ckpt")
    else:
        trainer.fit(Regression(), loader)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--storage-path")
    parser.add_argument("--name")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--stick", default="", help="rank 1 is stuck when this file appears")
    args = parser.parse_args()
    TorchTrainer(
        train_loop_per_worker,
        train_loop_config={"epochs": args.epochs, "stick": args.stick},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name=args.name,
            storage_path=args.storage_path,
            failure_config=FailureConfig(max_failures=1),
        ),
    ).fit()
