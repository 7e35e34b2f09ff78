"""Random numbers that depend on an example, not on a process.

An augmentation that draws from a process's generator changes with the number of loader processes,
or with the number of ranks of a resumed run. These numbers are a function of seed, epoch, example
and place only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Draws:
    seed: int
    epoch: int

    def bits(self, examples: NDArray[np.int64], place: int) -> NDArray[np.uint64]:
        """64 random bits for each example; another `place` gives others."""
        with np.errstate(over="ignore"):  # the wrap is what mixes
            state = _mix(np.full(1, self.seed, dtype=np.uint64) + _GOLDEN)
            state = _mix(state + _GOLDEN * np.uint64(self.epoch + 1))
            state = _mix(state + _GOLDEN * np.uint64(place + 1))
            return _mix(state + _GOLDEN * (examples.astype(np.uint64) + np.uint64(1)))

    def many(self, examples: NDArray[np.int64], count: int, place: int) -> NDArray[np.float64]:
        """From 0 to below 1, `count` numbers for each example: (n, count)."""
        own = self.bits(examples, place)[:, None]
        with np.errstate(over="ignore"):
            bits = _mix(own + _GOLDEN * np.arange(1, count + 1, dtype=np.uint64))
        return _uniform(bits)

    def integers(self, examples: NDArray[np.int64], below: int, place: int) -> NDArray[np.int64]:
        """From 0 to `below` - 1, for each example."""
        return (self.uniform(examples, place) * below).astype(np.int64)

    def uniform(self, examples: NDArray[np.int64], place: int) -> NDArray[np.float64]:
        """From 0 to below 1, for each example."""
        return _uniform(self.bits(examples, place))


def _uniform(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
    Generators, 2014).
    """
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
