"""A Transformers script on Ray Train as in its documentation, without cockpit."""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.huggingface.transformers import RayTrainReportCallback, prepare_trainer
from ray.train.torch import TorchTrainer
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)


class Words(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        text = torch.arange(index, index + 16) % 64
        return {"input_ids": text, "labels": text}


class Stick(TrainerCallback):
    """A rank that waits forever once a file appears."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if args.process_index == 1 and self.file.exists():
            stuck()


def stuck() -> None:
    time.sleep(3600.0)


def train_loop_per_worker(config: dict[str, Any]) -> None:
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=1, n_head=2)
    )
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            output_dir=directory,
            num_train_epochs=config["epochs"],
            per_device_train_batch_size=8,
            save_strategy="epoch",
            logging_strategy="epoch",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=Words())
        trainer.add_callback(RayTrainReportCallback())
        if config["stick"]:
            trainer.add_callback(Stick(Path(config["stick"])))
        prepare_trainer(trainer).train()


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
        run_config=RunConfig(name=args.name, storage_path=args.storage_path),
    ).fit()
