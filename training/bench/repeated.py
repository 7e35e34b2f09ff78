"""A quantity that was measured several times."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quartiles:
    median: float
    low: float
    """The lower quartile."""
    high: float
    """The upper quartile."""
    n: int

    def text(self, how: Callable[[float], str]) -> str:
        return f"{how(self.median)} ({how(self.low)}–{how(self.high)})"


def spread(values: Sequence[float]) -> Quartiles:
    """Raises ValueError for an empty list."""
    if not values:
        raise ValueError("nothing was measured")
    if len(values) == 1:
        return Quartiles(values[0], values[0], values[0], 1)
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Quartiles(middle, low, high, len(values))


def ratios(of: Sequence[float], to: Sequence[float]) -> Quartiles:
    """The ratio for each turn, so that load that slows both is in neither."""
    return spread([one / other for one, other in zip(of, to, strict=True)])
