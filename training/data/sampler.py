"""Which examples each rank sees in each step: a function of seed, epoch and step, nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Sampler:
    """Each epoch is a new order of the examples, and covers each example once over all ranks.

    It has no state, so that a resumed run needs only the number of the batch to go on with. The
    examples are dealt into steps as evenly as possible: every rank has the same number of steps,
    or a collective would wait for ever, and batches of one step differ by one example at most.
    """

    examples: int
    batch_size: int
    """The largest batch of one rank."""
    rank: int
    world_size: int
    seed: int

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"a batch of {self.batch_size} examples")
        if self.examples < self.world_size:
            raise ValueError(f"{self.examples} examples do not go round {self.world_size} ranks")

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        full = -(-self.examples // (self.batch_size * self.world_size))
        return min(full, self.examples // self.world_size)

    def epoch(self, epoch: int) -> list[NDArray[np.int64]]:
        """This rank's batches of the epoch, as indices of examples."""
        order = np.random.default_rng((self.seed, epoch)).permutation(self.examples)
        return [step[self.rank :: self.world_size] for step in np.array_split(order, self.steps)]
