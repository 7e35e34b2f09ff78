"""What every job takes."""

from __future__ import annotations

from dataclasses import dataclass

from training.data.settings import DataSettings
from training.models.settings import ModelSettings
from training.settings import setting
from training.techniques.settings import NetworkSettings, OptimizerSettings, SpeedSettings


@dataclass(frozen=True)
class RunSettings:
    """Run"""

    workers: int = setting(2, "training workers (ranks), one CPU or GPU each", at_least=1)
    epochs: int = setting(100, "passes over the data")
    max_steps: int = setting(0, "stop after so many steps, for a smoke test; 0: all")
    seed: int = setting(0, "of the model, the order of the data, and every rank's noise")
    gpu: str = setting("auto", "auto: when there is one for each worker", ("auto", "true", "false"))
    stop_on_nan: bool = setting(True, "stop when a loss is not a finite number")
    storage_path: str = setting("", "where checkpoints go, seen by all nodes; '': ~/ray_results")
    run_name: str = setting("", "the same name and path again: go on from the newest checkpoint")
    checkpoint_every_steps: int = setting(0, "within an epoch too; 0: at the end of each epoch")
    checkpoint_upload: str = setting(
        "async", "async: while training goes on; sync: it waits", ("async", "sync")
    )
    num_to_keep: int = setting(3, "newest checkpoints to keep: more to fall back to", at_least=1)
    start_over: bool = setting(False, "when no checkpoint is whole: from step 0, not stop")
    mlflow: str = setting("", "tracking server or folder; '': MLFLOW_TRACKING_URI, else none")


@dataclass(frozen=True)
class TrainSettings(
    NetworkSettings, SpeedSettings, OptimizerSettings, ModelSettings, DataSettings, RunSettings
):
    """All of them; a job declares anew what it has another default for, and adds its own."""
