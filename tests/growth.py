"""How the cost of some work grows with its size: a test of cost that holds on any machine."""

from __future__ import annotations

import time
from collections.abc import Callable

ROUNDS = 5


def growth(small: Callable[[], object], large: Callable[[], object]) -> float:
    """How many times the processor time of `small` `large` takes.

    The least of some turns each, taken in turn: what else the machine does, and how fast it is,
    is not the work's. What a piece of work costs in seconds is told by tests/bench.
    """
    took: dict[Callable[[], object], list[float]] = {small: [], large: []}
    for _ in range(ROUNDS):
        for work, all_s in took.items():
            began_s = time.process_time()
            work()
            all_s.append(time.process_time() - began_s)
    return min(took[large]) / min(took[small])
