"""The settings of every job."""

from __future__ import annotations

from dataclasses import dataclass

from training.checkpoint.storage import Best
from training.data.settings import DataSettings
from training.models.settings import ModelSettings
from training.settings import setting
from training.techniques.settings import NetworkSettings, OptimizerSettings, SpeedSettings


@dataclass(frozen=True)
class RunSettings:
    """Run"""

    workers: int = setting(2, "number of training workers (ranks), one CPU or GPU each", at_least=1)
    epochs: int = setting(100, "passes over the data")
    max_steps: int = setting(0, "stop after this number of steps, for a smoke test; 0: no limit")
    min_step_s: float = setting(
        0.0,
        "shortest time of a step in seconds, to leave the CPU to other work; 0: no pause",
        at_least=0,
    )
    seed: int = setting(
        0, "seed of the model, the order of the data, and each rank's random numbers", at_least=0
    )
    gpu: str = setting(
        "auto", "use GPUs; auto: if there is one for each worker", ("auto", "true", "false")
    )
    stop_on_nan: bool = setting(True, "stop when a loss is not a finite number")
    storage_path: str = setting(
        "", "where checkpoints are stored, shared by all nodes; empty: ~/ray_results"
    )
    run_name: str = setting(
        "", "name of the run; an existing name and path resumes from the newest checkpoint"
    )
    checkpoint_every_steps: int = setting(
        0, "steps between checkpoints within an epoch; 0: only at its end"
    )
    checkpoint_every: str = setting(
        "epoch",
        "epoch: save at the end of an epoch, and every checkpoint_every_steps; auto: also at the "
        "interval that loses the least time, from the measured cost of a save and interruptions",
        ("epoch", "auto"),
    )
    checkpoint_upload: str = setting(
        "async", "async: training continues during the upload; sync: it waits", ("async", "sync")
    )
    save_every_epochs: int = setting(
        1, "epochs between checkpoints; the last epoch always has one", at_least=1
    )
    num_to_keep: int = setting(3, "number of newest checkpoints to keep", at_least=1)
    keep_best: int = setting(
        0,
        "keep this number of best checkpoints, and the newest; 0: the newest num_to_keep",
        at_least=0,
    )
    best_metric: str = setting(
        "held_out_loss", "keep_best: metric of a checkpoint", ("held_out_loss", "accuracy", "loss")
    )
    best_mode: str = setting(
        "auto", "keep_best: which value is best; auto: max of accuracy", ("auto", "min", "max")
    )
    start_over: bool = setting(
        False, "if no checkpoint is valid: start from step 0 instead of stopping"
    )
    mlflow: str = setting("", "tracking server or directory; empty: MLFLOW_TRACKING_URI, else none")
    log_model: bool = setting(
        True, "with MLflow: log the best checkpoint that is kept as a model, at the end"
    )
    register_as: str = setting(
        "", "with MLflow: name of the registered model that gets it as a new version; empty: none"
    )


def best(settings: RunSettings) -> Best | None:
    """Which checkpoints are kept instead of the newest ones; None: the newest ones."""
    if not settings.keep_best:
        return None
    mode = settings.best_mode
    if mode == "auto":
        mode = "max" if settings.best_metric == "accuracy" else "min"
    return Best(settings.keep_best, settings.best_metric, highest=mode == "max")


@dataclass(frozen=True)
class TrainSettings(
    NetworkSettings, SpeedSettings, OptimizerSettings, ModelSettings, DataSettings, RunSettings
):
    """All settings; a job redeclares those with another default, and adds its own."""
