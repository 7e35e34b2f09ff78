"""Learnable examples that are generated on request, always the same.

For tests, and for measurements without a disk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from training.data.example_random import Draws
from training.data.examples import Batch, Data, NoData

SEED = 0
FIXED = Draws(SEED, epoch=0)
"""The seed of the examples, which are the same in each run and epoch."""
HELD_OUT = 8
"""The number of examples for evaluation is that for training divided by this."""

CELLS = 4
"""The pattern of a class has up to this many cells along each side of the image."""
NOISE = 1 << 16
"""Positions in the noise at which an image's own may begin."""

STEPS = (0.5, 0.25, 0.125, 0.125)
"""The probability of each of the tokens that may follow one."""
FLOOR = -sum(p * math.log(p) for p in STEPS)
"""The lowest possible loss on synthetic tokens, in nats a token: 1.75 bits."""


@dataclass(frozen=True, slots=True)
class Images:
    """Noise of deviation 1 plus the pattern of the image's class, also of deviation 1."""

    first: int
    """The number of the first of them among all examples."""
    count: int
    shape: tuple[int, int, int]
    patterns: NDArray[np.float32]
    """(classes, channels, rows, columns) of cells."""
    noise: NDArray[np.float32]

    def __len__(self) -> int:
        return self.count

    def batch(self, examples: NDArray[np.int64], draws: Draws | None) -> Batch:
        numbers = self.first + examples
        labels = FIXED.integers(numbers, len(self.patterns), 0)
        begins = FIXED.integers(numbers, NOISE, 1)
        _, channels, rows, columns = self.patterns.shape
        _, height, width = self.shape
        images = np.empty((len(examples), *self.shape), dtype=np.float32)
        cells = images.reshape(-1, channels, rows, height // rows, columns, width // columns)
        for own, label, begin in zip(cells, labels.tolist(), begins.tolist(), strict=True):
            noise = self.noise[begin : begin + own.size].reshape(own.shape)
            np.add(noise, self.patterns[label][:, :, None, :, None], out=own)
        return torch.from_numpy(images), torch.from_numpy(labels)


def images(shape: tuple[int, int, int], classes: int, examples: int) -> Data:
    if examples < 1 or classes < 1:
        raise NoData(f"{examples} synthetic examples of {classes} classes: give 1 or more of each")
    generator = np.random.default_rng(SEED)
    channels, height, width = shape
    patterns = generator.standard_normal(
        (classes, channels, cells(height), cells(width)), dtype=np.float32
    )
    noise = generator.standard_normal(NOISE + math.prod(shape), dtype=np.float32)
    held_out = max(1, examples // HELD_OUT)
    return Data(
        name="synthetic",
        train=Images(0, examples, shape, patterns, noise),
        held_out=Images(examples, held_out, shape, patterns, noise),
        shape=shape,
        classes=classes,
    )


def cells(side: int) -> int:
    return max(count for count in range(1, CELLS + 1) if side % count == 0)


@dataclass(frozen=True, slots=True)
class Tokens:
    """A Markov chain: each token can be followed by four others.

    The chain walks around a ring of all tokens in a random order, by 1 to 4 places at a time. All
    tokens are equally frequent, so that counting them yields no loss below log(vocabulary), and no
    model reaches a loss below FLOOR.
    """

    first: int
    count: int
    length: int
    ring: NDArray[np.int64]

    def __len__(self) -> int:
        return self.count

    def batch(self, examples: NDArray[np.int64], draws: Draws | None) -> Batch:
        numbers = self.first + examples
        likely = np.cumsum(STEPS)[:-1]
        steps = 1 + np.searchsorted(likely, FIXED.many(numbers, self.length, 0), side="right")
        begins = FIXED.integers(numbers, len(self.ring), 1)
        places = np.cumsum(np.concatenate([begins[:, None], steps], axis=1), axis=1)
        text = torch.from_numpy(self.ring[places % len(self.ring)])
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def tokens(length: int, vocabulary: int, examples: int) -> Data:
    if vocabulary <= len(STEPS) or length < 1 or examples < 1:
        raise NoData(
            f"{examples} synthetic examples of {length} tokens out of {vocabulary}: give 1 or more "
            f"examples and tokens, and a vocabulary of more than {len(STEPS)}"
        )
    ring = np.random.default_rng(SEED).permutation(vocabulary)
    held_out = max(1, examples // HELD_OUT)
    return Data(
        name="synthetic-tokens",
        train=Tokens(0, examples, length, ring),
        held_out=Tokens(examples, held_out, length, ring),
        shape=(length,),
        classes=vocabulary,
    )
