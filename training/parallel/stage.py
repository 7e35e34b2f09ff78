"""One rank's part of a model that is a sequence of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from training.models import blocks
from training.stop import Stop


@dataclass(frozen=True)
class Shared:
    """A weight that several stages share, such as that of GPT's tokens and its head."""

    weight: nn.Parameter
    stages: tuple[int, ...]


class Stage(nn.Module):
    """The part `before` the blocks is on the first stage, the part `after` them on the last, and
    the blocks are distributed in order, as evenly as possible. All other weights are removed.
    """

    def __init__(self, model: nn.Module, rank: int, size: int) -> None:
        """Raises Stop if the model has no such parts, or too few blocks."""
        super().__init__()
        if not hasattr(model, "before") or not hasattr(model, "after"):
            name = type(model).__name__
            raise Stop(f"{name} does not define `before` and `after` its blocks, as others do")
        row = blocks(model)
        if len(row) < size:
            raise Stop(f"{len(row)} blocks do not go round {size} stages: take fewer workers")
        dealt = [list(share) for share in np.array_split(np.arange(len(row)), size)]
        self.model = model
        self.own = [row[index] for index in dealt[rank]]
        self.is_first, self.is_last = rank == 0, rank == size - 1

        stage_of_block = {-1: 0, len(row): size - 1}
        stage_of_block |= {index: stage for stage, share in enumerate(dealt) for index in share}
        stages: dict[int, set[int]] = {}
        weights: dict[int, nn.Parameter] = {}
        for module, block in _places(model, row):
            at = stage_of_block[block]
            for weight in module._parameters.values():
                if weight is not None:
                    stages.setdefault(id(weight), set()).add(at)
                    weights[id(weight)] = weight
            if at != rank:
                for name in module._parameters:
                    module._parameters[name] = None
                for name in module._buffers:
                    module._buffers[name] = None
        self.shared = [
            Shared(weights[key], tuple(sorted(at))) for key, at in stages.items() if len(at) > 1
        ]
        """The tied weights of all stages, in the same order on each."""

    def forward(self, states: Tensor) -> Tensor:
        """From the model's inputs or the previous stage's states, to the states for the next or the
        answers.
        """
        if self.is_first:
            states = self.model.before(states)  # type: ignore[operator]
        for block in self.own:
            states = block(states)
        if self.is_last:
            states = self.model.after(states)  # type: ignore[operator]
        return states


def _places(model: nn.Module, row: list[nn.Module]) -> Iterator[tuple[nn.Module, int]]:
    """Each module with the number of its block: -1 if it is registered before the first block, and
    the number of blocks if after the last.
    """
    index = {id(module): number for number, block in enumerate(row) for module in block.modules()}
    outside = -1
    for module in model.modules():
        if id(module) in index:
            outside = len(row)
            yield module, index[id(module)]
        else:
            yield module, outside
