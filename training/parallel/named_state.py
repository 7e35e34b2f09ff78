"""The state of a distributed model, saved under the names of the whole model's tensors.

So it can be loaded with any number of ranks, and any kind of distribution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from training.checkpoint import sharded
from training.parallel.single_device import compare, shapes
from training.techniques.average import Average

STEPS = "average-steps"


@dataclass(frozen=True)
class Named:
    names: Mapping[int, str]
    """The parameters' names by id; for one with several, such as a tied one, the first."""
    shapes: Mapping[str, torch.Size]
    """The names of everything that the whole model saves."""

    def states(self, model: nn.Module, optimizer: Optimizer, average: Average) -> dict[str, Any]:
        """This rank's files, of its part of the model; call on every rank."""
        tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                if value is not None:  # as SGD's without momentum
                    tensors[f"optimizer/{self.names[id(parameter)]}/{key}"] = value
        averaged = average.state()
        if averaged:
            tensors |= self._averages(model, averaged)
            tensors[STEPS] = torch.tensor(averaged["steps"])
        return dict(sharded.save(tensors))

    def load(
        self, directory: Path, model: nn.Module, optimizer: Optimizer, average: Average
    ) -> None:
        """Load this rank's part. Raises IncompatibleCheckpoint if it is of another model."""
        saved = sharded.saved(directory)
        compare(
            {
                name.removeprefix("model/"): found.size
                for name, found in saved.items()
                if name.startswith("model/")
            },
            self.shapes,
        )
        wanted = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
        state: dict[int, dict[str, Tensor]] = {}
        parameters = [item for group in optimizer.param_groups for item in group["params"]]
        for index, parameter in enumerate(parameters):
            prefix = f"optimizer/{self.names[id(parameter)]}/"
            state[index] = {
                name.removeprefix(prefix): _like(parameter, found.size, found.properties.dtype)
                for name, found in saved.items()
                if name.startswith(prefix)
            }
            wanted |= {prefix + key: value for key, value in state[index].items()}
        averaged, steps = (average.state() if STEPS in saved else {}), torch.tensor(0)
        if averaged:
            wanted |= self._averages(model, averaged) | {STEPS: steps}
        sharded.load(directory, wanted)
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
        average.load(averaged | {"steps": int(steps)} if averaged else {})

    def _averages(self, model: nn.Module, averaged: Mapping[str, Any]) -> dict[str, Tensor]:
        learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return {
            f"average/{self.names[id(parameter)]}": value
            for parameter, value in zip(learnt, averaged["average"], strict=True)
        }


def named(model: nn.Module) -> Named:
    """The names in a model before it is split, or if its tensors know the other ranks' parts."""
    names: dict[int, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        names.setdefault(id(tensor), name)
    return Named(names, shapes(model.state_dict()))


def _like(parameter: Tensor, size: torch.Size, dtype: torch.dtype) -> Tensor:
    """An optimiser's state of a parameter: of the same shape and distribution, or a number."""
    if size == parameter.shape:
        return torch.zeros_like(parameter.detach(), dtype=dtype)
    return torch.zeros(size, dtype=dtype)
