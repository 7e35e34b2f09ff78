"""Start an attempt with fewer actors of Ray Train's own.

Ray Train 2.60 starts three actors with each attempt, beside the ranks. Each is a process that
imports Ray and Ray Train, which takes 1.9 s of CPU just when the ranks start. One, the barrier of
the ranks, can serve all attempts (`training.recovery.barrier`). The other two are a manager of
data sets, also for a run that has none (`train/v2/_internal/callbacks/datasets.py`), and a thread
that asks the GCS for nodes that drain (`train/v2/_internal/callbacks/preemption_callback.py`),
which runs in the controller as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
from ray.train.v2._internal.callbacks.preemption_callback import PreemptionCallback
from ray.train.v2._internal.execution.preemption import PreemptionWatcher

from training.patch import wrap

PROVIDE = "before_init_train_context"
START, STOP = "after_worker_group_start", "_stop_watcher"


class NoDatasets:
    """The provider of data sets in the ranks of a run that has none."""

    def get_dataset_shard(self, dataset_info: Any) -> Any:
        raise KeyError(
            f"There is no data set {dataset_info.dataset_name!r}: the trainer was given none. "
            "Pass it as `datasets`."
        )


def provide_no_datasets() -> None:
    """Change this process, for all of its runs."""
    wrap(DatasetsCallback, PROVIDE, _provide)


def _provide(provide: Callable[..., Any], callback: Any, workers: Any) -> Any:
    if callback._datasets:
        return provide(callback, workers)
    return {"dataset_shard_provider": [NoDatasets()] * len(workers)}


def watch_for_drains_here() -> None:
    """Change this process, for all of its runs."""
    wrap(PreemptionCallback, START, _start)
    wrap(PreemptionCallback, STOP, _stop)


def _start(_: object, callback: Any, worker_group: Any) -> None:
    callback._stop_watcher()
    workers = worker_group.get_workers()
    ranks: dict[str, list[int]] = {}
    for worker in workers:
        rank = worker.distributed_context.world_rank
        ranks.setdefault(worker.metadata.node_id, []).append(rank)
    callback._watcher = PreemptionWatcher(
        node_to_ranks=ranks,
        poll_interval_s=callback._poll_interval_s,
        worker_actors_by_rank={
            worker.distributed_context.world_rank: worker.actor for worker in workers
        },
    )


def _stop(_: object, callback: Any) -> None:
    watcher, callback._watcher = callback._watcher, None
    if watcher is not None:
        watcher._stop_event.set()
