"""The examples of each rank in each step: a function of seed, epoch and step only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.stop import Stop

MIXED = 1024
"""The minimum number of examples that are in a random order among each other, with chunks."""


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's micro-batches of one step."""

    epoch: int
    micro_batches: tuple[NDArray[np.int64], ...]
    """The numbers of examples."""
    examples: int
    """The examples of the whole step, over all ranks."""


@dataclass(frozen=True, slots=True)
class Sampler:
    """Each epoch is a new order of the examples, and covers each example once over all ranks.

    It has no state, so that a resumed run needs only the number of the next step. The examples are
    distributed over steps as evenly as possible: every rank has the same number of steps, or a
    collective would never complete, and shares of one step differ by at most one example. A step
    has the same examples for any number of ranks: fewer than `workers` ranks have more each.
    """

    examples: int
    batch_size: int
    """The largest micro-batch of one rank when all workers take part. If it is 1, some have 2, when
    the examples cannot be divided evenly: none may be empty.
    """
    rank: int
    world_size: int
    seed: int
    workers: int = 0
    """The number of ranks that the steps are divided for; 0: the current number."""
    accumulate: int = 1
    """Micro-batches of a step."""
    shuffle: bool = True
    chunks: tuple[int, ...] = ()
    """Numbers of consecutive examples that are read together, such as a row group of Parquet: an
    epoch has the chunks in a random order, and the examples of a few of them among each other. ():
    all examples in a random order.
    """

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.accumulate < 1:
            raise Stop(f"{self.accumulate} micro-batches of {self.batch_size} examples")
        if self.examples < self._shares:
            raise Stop(
                f"{self.examples} examples do not go round {self._shares} micro-batches of a step: "
                "take fewer workers, or a smaller --accumulate"
            )

    @property
    def steps(self) -> int:
        """The steps of an epoch: according to batch_size, but no micro-batch may be empty."""
        whole = -(-self.examples // (self.batch_size * self._shares))
        return min(whole, self.examples // self._shares)

    @property
    def _shares(self) -> int:
        """The micro-batches that a step is divided into."""
        return max(self.workers, self.world_size) * self.accumulate

    def epoch(self, epoch: int, after: int = 0) -> Iterator[Share]:
        """This rank's share of each step of the epoch, without the first `after` steps."""
        order = self._shuffled(epoch) if self.shuffle else np.arange(self.examples)
        for step in np.array_split(order, self.steps)[after:]:
            own = step[self.rank :: self.world_size]
            yield Share(epoch, tuple(np.array_split(own, self.accumulate)), len(step))

    def _shuffled(self, epoch: int) -> NDArray[np.int64]:
        random = np.random.default_rng((self.seed, epoch))
        if not self.chunks:
            return random.permutation(self.examples)
        ends = np.cumsum(self.chunks)
        mixed: list[NDArray[np.int64]] = []
        together: list[NDArray[np.int64]] = []
        for chunk in random.permutation(len(ends)):
            together.append(np.arange(ends[chunk] - self.chunks[chunk], ends[chunk]))
            if sum(map(len, together)) >= MIXED:
                mixed.append(random.permutation(np.concatenate(together)))
                together = []
        if together:
            mixed.append(random.permutation(np.concatenate(together)))
        return np.concatenate(mixed)
