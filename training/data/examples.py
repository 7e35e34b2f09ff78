"""The interface of every data set to a training loop: examples by number."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    test: Examples | None = None
    """Evaluated once, after the last step."""
    chunks: tuple[int, ...] = ()
    """Numbers of consecutive training examples that are read together; (): each by itself."""

    @property
    def is_tokens(self) -> bool:
        return len(self.shape) == 1


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the examples, renumbered; their augmentation is that of their original numbers."""

    of: Examples
    numbers: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.numbers)

    def batch(self, examples: NDArray[np.int64], draws: Draws | None) -> Batch:
        return self.of.batch(self.numbers[examples], draws)


def with_validation(data: Data, share: float, seed: int) -> Data:
    """Draw a validation set from the training examples; the held-out examples become the test set.

    The choice depends on the number of examples and the seed only. Raises NoData if one of the two
    would have no examples.
    """
    count = len(data.train)
    order = np.random.default_rng(seed).permutation(count)
    validation = round(count * share)
    if not 0 < validation < count:
        raise NoData(
            f"validation_share {share:g} of {count} examples is {validation}: take another share, "
            "or more examples"
        )
    numbers = np.sort(order[validation:])
    ends = np.searchsorted(numbers, np.cumsum(data.chunks))
    return replace(
        data,
        train=Part(data.train, numbers),
        held_out=Part(data.train, np.sort(order[:validation])),
        test=data.held_out,
        chunks=tuple(int(size) for size in np.diff(ends, prepend=0) if size),
    )


class NoData(Stop):
    """The data set is missing, or not as expected: what, where, and what to do."""
