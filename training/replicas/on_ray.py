"""The replicas of a Ray Train run, and the server of their quorum in Ray Train's controller.

Ray Train 2.60 replaces a lost worker in place when its backend has replica groups, which it has for
torchft (`ray.train.v2.torch.torchft_config`): the other workers are not restarted. Each of these
groups is one worker.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import ray
import ray.train
from ray.train.backend import Backend, BackendConfig
from ray.train.torch import TorchConfig

from training.checkpoint.filesystem import size_bytes
from training.checkpoint.in_folder import FolderCheckpoints
from training.checkpoint.storage import RunDirectory
from training.loop.settings import TrainSettings, best
from training.replicas.membership import Quorum
from training.replicas.messages import QuorumAddress
from training.replicas.replica import Place, train
from training.replicas.server import QuorumServer
from training.telemetry.ray_train import replicas
from training.telemetry.wire import Heal
from training.telemetry.worker import attempt_observer

_quorum: QuorumAddress | None = None
"""In a rank: the address of the run's QuorumServer."""


@dataclasses.dataclass
class ReplicaConfig(TorchConfig):  # type: ignore[misc]
    """`timeout_s` is also how long a replica that does not respond delays the others."""

    @property
    def backend_cls(self) -> type[Backend]:
        return _ReplicaBackend


class _ReplicaBackend(Backend):  # type: ignore[misc]
    """Without the process group that Ray would create: its members could not change."""

    has_replica_groups = True

    def __init__(self) -> None:
        self._server: QuorumServer | None = None

    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        if self._server is None or not _is_part(worker_group):
            self._stop()
            self._server = QuorumServer(
                len(worker_group),
                patience_s=float(backend_config.timeout_s),
                host=ray.util.get_node_ip_address(),
                on_change=_report(len(worker_group)),
            )
        worker_group.execute(_set_quorum, self._server.address)

    def on_shutdown(self, worker_group: Any, backend_config: BackendConfig) -> None:
        if not _is_part(worker_group):
            self._stop()

    def _stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None


def _is_part(worker_group: Any) -> bool:
    """Whether it is a replica that is replaced, and not all workers."""
    from ray.train.v2._internal.execution.worker_group.execution_group import ReplicaGroup

    return isinstance(worker_group, ReplicaGroup)


def _set_quorum(address: QuorumAddress) -> None:
    global _quorum
    _quorum = address


def _report(count: int) -> Callable[[Quorum], None]:
    def changed(quorum: Quorum) -> None:
        replicas.changed(
            number=quorum.number,
            replicas=count,
            members=quorum.members,
            step=quorum.step,
            heals=tuple(Heal(rank=heal.replica, source=heal.source) for heal in quorum.heals),
        )

    return changed


def work(settings: TrainSettings) -> dict[str, Any]:
    """Train as a rank of a Ray Train run."""
    import torch

    torch.set_num_threads(1)  # ranks that share a host would use each other's cores
    context = ray.train.get_context()
    storage = context.get_storage()
    run = RunDirectory(storage.storage_filesystem, storage.experiment_fs_path)

    def finished(metrics: Mapping[str, float], checkpoint: str) -> None:
        attempt_observer.reported(
            metrics,
            run.shown(checkpoint) if checkpoint else "",
            size_bytes(run.filesystem, checkpoint) if checkpoint else None,
        )

    def checkpoints() -> FolderCheckpoints:
        return FolderCheckpoints(
            run,
            0,
            1,
            in_background=settings.checkpoint_upload == "async",
            may_start_over=settings.start_over,
            keep=settings.num_to_keep,
            best=best(settings),
            finished=finished,
        )

    assert _quorum is not None, "ReplicaConfig sets it"
    place = Place(context.get_world_rank(), ray.util.get_node_ip_address(), _quorum)
    return train(settings, place, checkpoints)
