"""The interface of every data set to a training loop: examples by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from training.data.example_random import Draws
from training.stop import Stop

Batch: TypeAlias = tuple[Tensor, Tensor]
"""Inputs and targets: images (n, c, h, w) and labels (n,), or tokens (n, t) and the tokens that
follow each of them (n, t).
"""


class Examples(Protocol):
    def __len__(self) -> int: ...

    def batch(self, examples: NDArray[np.int64], draws: Draws | None) -> Batch:
        """Return these examples, in this order; with draws, augmented if the data set does so."""
        ...


@dataclass(frozen=True)
class Data:
    name: str
    train: Examples
    held_out: Examples
    shape: tuple[int, ...]
    """The shape of an example: (channels, height, width), or (tokens,)."""
    classes: int
    """The number of labels, or the size of the vocabulary."""

    @property
    def is_tokens(self) -> bool:
        return len(self.shape) == 1


class NoData(Stop):
    """The data set is missing, or not as expected: what, where, and what to do."""
