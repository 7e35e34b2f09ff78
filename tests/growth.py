"""How the cost of some work grows with its size: a test of cost that holds on any machine."""

from __future__ import annotations

import time
from collections.abc import Callable

ROUNDS = 5


def growth(small: Callable[[], object], large: Callable[[], object]) -> float:
    """The ratio of the CPU time of `large` to that of `small`.

    The minimum of several alternating rounds, so that neither the load nor the speed of the machine
    matters. For absolute times see tests/bench.
    """
    took: dict[Callable[[], object], list[float]] = {small: [], large: []}
    for _ in range(ROUNDS):
        for work, all_s in took.items():
            began_s = time.process_time()
            work()
            all_s.append(time.process_time() - began_s)
    return min(took[large]) / min(took[small])
