"""Ray Train in the trials of Ray Tune, as in the documentation, without cockpit."""

import argparse
import os

import ray
import ray.train
from ray import tune
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train_loop_per_worker(config: dict[str, float]) -> None:
    ray.train.report({"score": config["lr"]})


def drive(config: dict[str, float]) -> None:
    trainer = TorchTrainer(
        train_loop_per_worker,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(
            name=f"train-{tune.get_context().get_trial_id()}",
            storage_path=tune.get_context().get_storage().storage_fs_path,
        ),
    )
    trainer.fit()
    tune.report({"score": config["lr"]})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--storage-path")
    parser.add_argument("--name")
    args = parser.parse_args()
    # The environment of a submitted job, which all its processes inherit.
    names = (
        "RAY_ADDRESS",
        "RAY_TRAIN_CALLBACKS",
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S",
        "PYTHONPATH",
    )
    ray.init(runtime_env={"env_vars": {name: os.environ[name] for name in names}})
    tune.Tuner(
        drive,
        param_space={"lr": 0.1},
        run_config=tune.RunConfig(name=args.name, storage_path=args.storage_path),
    ).fit()
