"""The driver's part of a job on Ray Train: resources, storage, failures, and the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

from training.checkpoint.filesystem import StorageUnusable, absolute, is_address, located, probe
from training.checkpoint.storage import RunDirectory
from training.jobs import missing_resources, network_interface
from training.jobs.placement import Placement, scaling
from training.loop.evaluate import summary
from training.loop.settings import RunSettings, TrainSettings, best
from training.serving.publish import Candidate, publish
from training.settings import setting
from training.techniques import environment
from training.techniques.memory import OutOfMemory


@dataclass(frozen=True)
class OnRay(Placement, TrainSettings):
    """On Ray"""

    max_failures: int = setting(5, "restarts before the run fails; -1: unlimited")
    memory_every_steps: int = setting(
        0,
        "steps between checkpoints in the memory of two nodes, besides those on the storage; "
        "0: none",
        at_least=0,
    )
    when_lacking: str = setting(
        "wait", "wait or fail if the cluster lacks resources for all workers", ("wait", "fail")
    )


@dataclass(frozen=True)
class Elastic(OnRay):
    """Elastic"""

    min_workers: int = setting(
        0, "minimum number to continue with when some are lost; 0: not elastic", at_least=0
    )
    resize_interval_s: float = setting(60.0, "seconds between checks for returned workers")


def fit(
    train_on_ray: Callable[[dict[str, Any]], dict[str, Any]],
    settings: OnRay,
    name: str,
    backend: Any = None,
) -> Any:
    """Run the training function on every worker. Returns Ray Train's result.

    `backend`: a TorchConfig; None: Ray's, with one process group of all workers.

    Exits with a message if the settings do not fit the cluster, or if training stopped itself.
    """
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.train.v2.api.exceptions import WorkerGroupError

    least = settings.workers
    elastic: dict[str, Any] = {}
    if isinstance(settings, Elastic):
        if not 0 <= settings.min_workers <= settings.workers:
            raise SystemExit(
                f"--min-workers is 0 to {settings.workers}, not {settings.min_workers}"
            )
        least = settings.min_workers or settings.workers
        check_losses("hierarchical", settings.hierarchical, max(2, least), settings.workers)
        elastic["elastic_resize_monitor_interval_s"] = settings.resize_interval_s
    place = storage_of(settings)
    if not ray.is_initialized():
        ray.init()
    falls = "workers" if least == settings.workers else "min-workers"
    takes = missing_resources.found(
        settings.gpu, least, settings.when_lacking, flag=falls, wanted=settings
    ).resource

    # The workers receive the name too; the tracker and the checkpoints use it.
    name = settings.run_name or time.strftime(f"{name}-%Y%m%d-%H%M%S")
    settings = replace(settings, run_name=name)
    variables = environment.variables(settings)
    network_interface.check(settings.interface)
    run_config = RunConfig(
        name=name,
        **place,
        failure_config=FailureConfig(max_failures=settings.max_failures),
        checkpoint_config=retention(settings),
        worker_runtime_env={"env_vars": variables} if variables else None,
    )
    context = run_config.storage_context
    run = RunDirectory(context.storage_filesystem, context.experiment_fs_path)
    for repaired in run.repair():
        print(repaired, flush=True)

    trainer = TorchTrainer(
        train_on_ray,
        train_loop_config=asdict(settings),
        torch_config=backend or TorchConfig(timeout_s=int(settings.timeout_s)),
        scaling_config=ScalingConfig(
            num_workers=settings.workers
            if least == settings.workers
            else (least, settings.workers),
            **scaling(settings, takes),
            **elastic,
        ),
        run_config=run_config,
    )
    try:
        with in_memory(settings):
            result = trainer.fit()
    except WorkerGroupError as failed:
        for error in failed.worker_failures.values():
            raised = getattr(error, "_base_exc", error)  # ray 2.60 wraps it with its traceback
            if isinstance(raised, OutOfMemory):
                raise SystemExit(f"failed: {raised}") from None
        raise
    if stopped := (result.return_value or {}).get("stopped"):
        raise SystemExit(f"stopped: {stopped}; its checkpoints are in {run.shown(result.path)}")
    publish(settings, kept(result))
    # A run that had already finished does nothing, and its newest checkpoint has the result.
    # The replicas of fault_tolerant report nothing to Ray Train, and return it.
    newest = result.metrics or result.return_value
    if newest and "accuracy" in newest:
        print(summary(newest), flush=True)
    return result


def in_memory(settings: OnRay) -> AbstractContextManager[None]:
    """The holders of the checkpoints in memory, if the run has any."""
    if not settings.memory_every_steps:
        return nullcontext()
    from training.checkpoint.memory.on_ray import keeping

    return keeping(settings.run_name)


def storage_of(settings: RunSettings) -> dict[str, Any]:
    """The storage of a run, as arguments of Ray's RunConfig. Exits if it cannot be used."""
    if not is_address(settings.storage_path):
        return {"storage_path": storage(settings.storage_path)}
    try:
        probe(settings.storage_path)
        filesystem, path = located(settings.storage_path)
    except StorageUnusable as why:
        raise SystemExit(f"stopped: {why}") from None
    return {"storage_path": path, "storage_filesystem": filesystem}


def retention(settings: RunSettings) -> Any:
    """Ray keeps the newest checkpoint too, which the run resumes from."""
    from ray.train import CheckpointConfig

    wanted = best(settings)
    if wanted is None:
        return CheckpointConfig(num_to_keep=settings.num_to_keep)
    return CheckpointConfig(
        num_to_keep=wanted.count,
        checkpoint_score_attribute=wanted.metric,
        checkpoint_score_order="max" if wanted.highest else "min",
    )


def kept(result: Any) -> list[Candidate]:
    """The checkpoints that Ray Train keeps, with what was reported with them."""
    return [
        Candidate(checkpoint.path.rpartition("/")[2], metrics, checkpoint.as_directory)
        for checkpoint, metrics in result.best_checkpoints or ()
    ]


def check_losses(name: str, ranks: int, least: int, workers: int) -> None:
    """Exit if losing workers may leave a number, from `least` to all, that groups of `ranks` do not
    divide: the run could not continue. 0 ranks: there are no groups.
    """
    left = [size for size in range(least, workers) if ranks and size % ranks]
    if left:
        raise SystemExit(
            f"--{name} {ranks}: when workers are lost, {left[-1]} that are left do not divide into "
            f"groups of {ranks}: take --min-workers {workers}, or --{name} 0"
        )


def storage(path: str) -> str | None:
    """The absolute path of a directory on this host; an object store's address unchanged."""
    return absolute(path) if path else None
