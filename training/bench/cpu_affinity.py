"""Cores of its own for each rank of a host, so that worlds of any size are compared fairly.

A rank that is alone on a host would else have all of its cores, and each of two ranks half of them:
what then looks like the cost of exchanging gradients is that of sharing cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from training.loop.world import World


def share(there: set[int], local_rank: int, each: int) -> set[int]:
    """Of the cores that are there; empty when they do not go round."""
    own = sorted(there)[local_rank * each : (local_rank + 1) * each]
    return set(own) if len(own) == each else set()


@contextmanager
def own_cores(world: World, each: int) -> Iterator[bool]:
    """This thread, and those that it starts, stay on as many cores as every other rank.

    False where there are too few, and the rank takes what it gets.
    """
    there, threads = os.sched_getaffinity(0), torch.get_num_threads()
    own = share(there, world.local_rank, each)
    if own:
        os.sched_setaffinity(0, own)
    torch.set_num_threads(each)
    try:
        yield bool(own)
    finally:
        os.sched_setaffinity(0, there)
        torch.set_num_threads(threads)
