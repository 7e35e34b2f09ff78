"""The whole model on every rank, and the mean of their gradients: DistributedDataParallel."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from training import telemetry
from training.loop.settings import TrainSettings
from training.loop.world import World
from training.parallel.single_device import Whole
from training.techniques import hooks


class Replicated(Whole):
    uses_ddp = True

    def __init__(self, model: nn.Module, world: World, settings: TrainSettings) -> None:
        super().__init__(model, world)
        self._ddp = DistributedDataParallel(
            self.model,
            device_ids=[world.device] if world.device.type == "cuda" else None,
            bucket_cap_mb=settings.bucket_mb,
            static_graph=settings.static_graph,
            gradient_as_bucket_view=True,
        )
        hooks.install(self._ddp, settings, world)
        telemetry.ddp(self._ddp)
        self.model = self._ddp
        self._records = settings.static_graph

    def accumulating(self) -> AbstractContextManager[object]:
        """DDP records a static graph in the first backward pass, which must be complete: gradients
        that were averaged before are unchanged by averaging them again.
        """
        records, self._records = self._records, False
        return nullcontext() if records else self._ddp.no_sync()


def replicated(model: nn.Module, world: World, settings: TrainSettings) -> Whole:
    """A world without a process group has one rank."""
    if not dist.is_initialized():
        return Whole(model, world)
    return Replicated(model, world, settings)
