"""FSDP2: each rank has a part of every weight, of its gradient and of its optimiser's state.

A block's weights are gathered when it computes, and freed after it (Rajbhandari and others: ZeRO,
2020; Zhao and others: PyTorch FSDP, 2023). The parts are DTensors, split by rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from training.checkpoint.sharded import is_in_parts
from training.loop.settings import TrainSettings
from training.loop.world import World
from training.models import blocks
from training.parallel import gathering, gradient_norm
from training.parallel.named_state import named
from training.parallel.settings import ShardSettings
from training.parallel.single_device import AVERAGE, MODEL, OPTIMIZER, Whole, fit, read
from training.stop import Stop
from training.techniques.average import Average
from training.techniques.precision import LOWER


class Sharded(Whole):
    in_parts = True
    saves_alone = False

    def __init__(
        self, model: nn.Module, world: World, settings: TrainSettings, sharding: ShardSettings
    ) -> None:
        shards = sharding.shards or world.size
        if world.size % shards:
            raise Stop(f"{world.size} ranks do not make copies of {shards}: take another --shards")
        mesh = init_device_mesh(
            world.device.type,
            (world.size // shards, shards),
            mesh_dim_names=("replicas", "shards"),
        )
        self._sharing = mesh.get_group("shards")
        lower = LOWER.get(settings.precision)
        offloads = sharding.cpu_offload and world.device.type == "cuda"
        how: dict[str, Any] = {
            "mesh": mesh["shards"] if shards == world.size else mesh,
            "reshard_after_forward": sharding.reshard_after_forward,
            "offload_policy": CPUOffloadPolicy() if offloads else OffloadPolicy(),
        }
        # The model is on the CPU until here, and a GPU never has more than one complete block of
        # it.
        for block in blocks(model):
            fully_shard(block, mp_policy=MixedPrecisionPolicy(lower), **how)
        answers = torch.float32 if lower else None
        fully_shard(model, mp_policy=MixedPrecisionPolicy(lower, output_dtype=answers), **how)
        assert isinstance(model, FSDPModule)

        self.model: nn.Module = model
        self._fsdp = model
        self._world = world
        self._full = sharding.checkpoint_form == "full"
        self.casts_itself = lower is not None
        self._named = named(model)
        # Not by name: a block that is computed again has another one outside of a state_dict.
        saved = set(map(id, model.state_dict(keep_vars=True).values()))
        self._statistics = [
            buffer
            for buffer in model.buffers()
            if id(buffer) in saved and buffer.is_floating_point()
        ]
        model.register_forward_pre_hook(self._evaluated)
        if settings.ema_decay and not sharding.reshard_after_forward:
            model.register_forward_hook(self._free_averages)
        if world.rank == 0:
            own = sum(_local(item).nbytes for item in model.parameters())
            whole = sum(item.numel() * item.element_size() for item in model.parameters())
            print(f"rank 0 has {own:,} of the weights' {whole:,} bytes", flush=True)

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        """During this, the gradient of every weight is complete on its rank."""
        self._fsdp.set_requires_gradient_sync(False)
        self._fsdp.set_is_last_backward(False)
        try:
            yield
        finally:
            self._fsdp.set_is_last_backward(True)
            self._fsdp.set_requires_gradient_sync(True)

    def clip(self, longest: float) -> Tensor:
        gradients = [item.grad for item in self.model.parameters() if item.grad is not None]
        return gradient_norm.clip(
            [_local(item) for item in gradients], longest, self._world.device, self._sharing
        )

    def states(self, optimizer: Optimizer, average: Average) -> dict[str, Any]:
        self._agree_on_statistics()
        if not self._full:
            return self._named.states(self.model, optimizer, average)
        whole = {
            MODEL: self.model.state_dict(),
            OPTIMIZER: optimizer.state_dict(),
            AVERAGE: average.state(),
        }
        kept = gathering.gather(whole, self._world.device, keep=self._world.rank == 0)
        return dict(kept) if self._world.rank == 0 else {}

    def load(self, directory: Path, optimizer: Optimizer, average: Average) -> None:
        """Accepts both forms, independent of the form that is saved now."""
        if is_in_parts(directory):
            self._named.load(directory, self.model, optimizer, average)
            return
        saved = read(directory)
        fit(saved[MODEL], self.model)
        for name, own in self.model.state_dict().items():
            gathering.fill(own, saved[MODEL][name])
        parameters = [item for group in optimizer.param_groups for item in group["params"]]
        for index, state in saved[OPTIMIZER]["state"].items():
            for key, value in state.items():
                state[key] = gathering.part(value, parameters[index])
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict(saved[OPTIMIZER] | {"param_groups": groups})
        averaged = average.state()
        if averaged and saved[AVERAGE]:
            for own, value in zip(averaged["average"], saved[AVERAGE]["average"], strict=True):
                gathering.fill(own, value)
            average.load(averaged | {"steps": saved[AVERAGE]["steps"]})
        else:
            average.load({})

    def _evaluated(self, module: nn.Module, inputs: Any) -> None:
        if not module.training:
            self._agree_on_statistics()

    def _free_averages(self, module: nn.Module, inputs: Any, answers: Any) -> None:
        """Only a backward pass frees the weights here: without one, the next step would compute
        with those of the evaluation, which are the moving average.
        """
        if not module.training:
            for part in module.modules():
                if isinstance(part, FSDPModule):
                    part.reshard()

    @torch.no_grad()
    def _agree_on_statistics(self) -> None:
        """Batch norm's statistics are of a rank's own examples: all use rank 0's, as DDP does."""
        if self._statistics:
            agreed = torch.cat([own.flatten() for own in self._statistics])
            dist.broadcast(agreed, src=0)
            sizes = [own.numel() for own in self._statistics]
            for own, part in zip(self._statistics, torch.split(agreed, sizes), strict=True):
                own.copy_(part.view_as(own))


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
