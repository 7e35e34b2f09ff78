"""A Ray Tune script as in its documentation, without cockpit."""

import argparse
import time

from ray import tune


def objective(config: dict[str, float]) -> None:
    score = 0.0
    for _ in range(3):
        score += config["lr"]
        tune.report({"score": score})
        time.sleep(0.3)
    if config["lr"] > 0.25:
        raise ValueError("it diverged")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--storage-path")
    parser.add_argument("--name")
    args = parser.parse_args()
    tuner = tune.Tuner(
        tune.with_resources(objective, {"cpu": 1}),
        param_space={"lr": tune.grid_search([0.1, 0.2, 0.3]), "api_key": "hush"},
        tune_config=tune.TuneConfig(metric="score", mode="max", max_concurrent_trials=2),
        run_config=tune.RunConfig(name=args.name, storage_path=args.storage_path),
    )
    tuner.fit()
