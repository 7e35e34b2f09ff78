"""A moving average of the weights, which is usually better than the newest weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class Average:
    """After each step, `decay` parts of the average and the rest of the newest weights; 0: no
    average.

    After few steps the average would mostly be the initial weights: there the decay is (1 + steps)
    / (10 + steps), as in TensorFlow's ExponentialMovingAverage.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay, self._steps = decay, 0
        learnt = [item for item in model.parameters() if item.requires_grad]
        self._learnt: list[Tensor] = list(learnt) if decay else []
        self._average = [item.detach().clone() for item in self._learnt]

    @torch.no_grad()
    def update(self) -> None:
        if not self._learnt:
            return
        self._steps += 1
        decay = min(self._decay, (1 + self._steps) / (10 + self._steps))
        torch._foreach_lerp_(self._average, self._learnt, 1 - decay)

    @contextmanager
    def used(self) -> Iterator[None]:
        """A context in which the model has the average as its weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for own, averaged in zip(self._learnt, self._average, strict=True):
            held = own.detach().clone()
            own.copy_(averaged)
            averaged.copy_(held)

    def state(self) -> dict[str, Any]:
        """Empty if there is none."""
        return {"steps": self._steps, "average": self._average} if self._learnt else {}

    @torch.no_grad()
    def load(self, state: dict[str, Any]) -> None:
        """From the same model. If none was saved, it starts with the model's weights; one that was
        saved is left out if there is none now.
        """
        saved = state if self._learnt else {}
        self._steps = saved.get("steps", 0)
        for averaged, value in zip(self._average, saved.get("average", self._learnt), strict=True):
            averaged.copy_(value)
