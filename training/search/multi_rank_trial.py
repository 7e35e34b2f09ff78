"""A trial that is a Ray Train run of several ranks, driven from the trial's process.

Ray Train V2 reserves its workers' resources separately from those of the trial (Ray 2.60,
ray/train/v2/_internal/execution/worker_group/worker_group.py), so the trial reserves none for them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict
from queue import Empty
from threading import Thread
from typing import Any

from ray import tune
from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.v2.api.callback import UserCallback
from ray.util.queue import Queue

from training.jobs.fit import OnRay
from training.jobs.placement import scaling
from training.techniques import environment as of_ranks

POLL_S = 0.2
START_FROM = "start_from"
"""The key, beside a rank's settings, for the path of the initial checkpoint."""
UNDER_WAY = 4
"""Checkpoints of the run that may exist before Tune has copied the first of them: in the report
callback, in the queue, in the trial, and one that the ranks have just written.
"""


class _ForwardReports(UserCallback):  # type: ignore[misc]
    """Send reports from the run's controller to the trial; a full queue waits for the trial."""

    def __init__(self, reports: Queue) -> None:
        self._reports = reports

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any
    ) -> None:
        self._reports.put((metrics[0], checkpoint.path if checkpoint else ""))


def train_ranks(
    train_on_ray: Callable[[dict[str, Any]], dict[str, Any]],
    settings: OnRay,
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """Train on `settings.workers` ranks; returns what they returned.

    Raises what Ray Train raises if the run fails.
    """
    os.environ.update(environment)
    storage = tune.get_context().get_storage()
    given = tune.get_checkpoint()
    reports = Queue(maxsize=1, actor_options={"num_cpus": 0})
    variables = of_ranks.variables(settings)
    trainer = TorchTrainer(
        train_on_ray,
        train_loop_config=asdict(settings) | {START_FROM: given.path if given else ""},
        torch_config=TorchConfig(timeout_s=int(settings.timeout_s)),
        scaling_config=ScalingConfig(
            num_workers=settings.workers,
            **scaling(settings, "GPU" if settings.gpu == "true" else "CPU"),
        ),
        run_config=RunConfig(
            # A new name each time, so that it starts from the checkpoint that it is given.
            name=f"run-{secrets.token_hex(4)}",
            storage_path=storage.trial_fs_path,
            storage_filesystem=storage.storage_filesystem,
            failure_config=FailureConfig(max_failures=settings.max_failures),
            checkpoint_config=CheckpointConfig(num_to_keep=max(UNDER_WAY, settings.num_to_keep)),
            callbacks=[_ForwardReports(reports)],
            worker_runtime_env={"env_vars": variables} if variables else None,
        ),
    )
    ended: list[Any] = []

    def fit() -> None:
        try:
            ended.append(trainer.fit())
        except Exception as error:  # noqa: BLE001, raised by the trial's own thread
            ended.append(error)

    driver = Thread(target=fit, name="train", daemon=True)
    driver.start()
    while True:
        is_last = not driver.is_alive()
        try:
            metrics, path = reports.get(timeout=POLL_S)
        except Empty:
            if is_last:
                break
            continue
        checkpoint = tune.Checkpoint(path, storage.storage_filesystem) if path else None
        resumed_from = given.path if given else ""
        tune.report({**metrics, "resumed_from": resumed_from}, checkpoint=checkpoint)
    (result,) = ended
    if isinstance(result, Exception):
        raise result
    returned: dict[str, Any] = result.return_value or {}
    return returned
