"""The whole model on one device."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer

from training.data.loader import Step
from training.loop.forward_backward import passes
from training.loop.settings import TrainSettings
from training.loop.world import World
from training.parallel import IncompatibleCheckpoint
from training.techniques.average import Average
from training.techniques.optimizer import optimizer
from training.techniques.precision import Precision

MODEL, OPTIMIZER, AVERAGE = "model.pt", "optimizer.pt", "average.pt"


class Whole:
    casts_itself = False
    in_parts = False
    uses_ddp = False
    saves_alone = True

    def __init__(self, model: nn.Module, world: World) -> None:
        self.model = model.to(world.device)
        self._unwrapped, self._world = self.model, world
        self._saves = world.rank == 0

    @cached_property
    def _learnt(self) -> list[nn.Parameter]:
        """Cached: a search through all modules of ResNet-152 takes half a millisecond."""
        return [item for item in self.model.parameters() if item.requires_grad]

    @property
    def example_groups(self) -> World:
        return self._world

    def optimizer(self, settings: TrainSettings) -> Optimizer:
        return optimizer(self.model.parameters(), settings)

    def passes(
        self, step: Step, precision: Precision, settings: TrainSettings
    ) -> tuple[Tensor, float]:
        return passes(step, self, precision, self._world, settings)

    def accumulating(self) -> AbstractContextManager[object]:
        return nullcontext()

    def clip(self, longest: float) -> Tensor:
        length = get_total_norm([item.grad for item in self._learnt if item.grad is not None])
        if longest:
            clip_grads_with_norm_(self._learnt, longest, length)
        return length

    def states(self, optimizer: Optimizer, average: Average) -> dict[str, Any]:
        if not self._saves:
            return {}
        return {
            MODEL: self._unwrapped.state_dict(),
            OPTIMIZER: optimizer.state_dict(),
            AVERAGE: average.state(),
        }

    def load(self, directory: Path, optimizer: Optimizer, average: Average) -> None:
        saved = read(directory)
        fit(saved[MODEL], self._unwrapped)
        self._unwrapped.load_state_dict(saved[MODEL])
        # Weight decay and momentum are those of the settings, even if the checkpoint has others.
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict(saved[OPTIMIZER] | {"param_groups": groups})
        average.load(saved[AVERAGE])


def read(directory: Path) -> dict[str, Any]:
    """By file, on the CPU. Raises IncompatibleCheckpoint if the model is saved in parts."""
    if not (directory / MODEL).exists():
        raise IncompatibleCheckpoint(
            "its model is in parts, which fsdp2 reads and with --checkpoint-form full saves whole"
        )
    return {
        name: torch.load(directory / name, map_location="cpu", weights_only=True)
        for name in (MODEL, OPTIMIZER, AVERAGE)
    }


def fit(saved: Mapping[str, Tensor], model: nn.Module) -> None:
    """Raises IncompatibleCheckpoint if these are not the weights of such a model."""
    compare(shapes(saved), shapes(model.state_dict()))


def shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def compare(saved: Mapping[str, torch.Size], own: Mapping[str, torch.Size]) -> None:
    """Raises IncompatibleCheckpoint if the saved model has other shapes."""
    for name in [*own, *saved]:
        if name not in saved or name not in own:
            where = "the checkpoint" if name in saved else "the model"
            raise IncompatibleCheckpoint(f"only {where} has {name}")
        if saved[name] != own[name]:
            shapes = [f"({', '.join(map(str, item))})" for item in (saved[name], own[name])]
            raise IncompatibleCheckpoint(
                f"{name} is {shapes[0]} in the checkpoint and {shapes[1]} in the model"
            )


def whole(model: nn.Module, world: World, settings: TrainSettings) -> Whole:
    return Whole(model, world)
