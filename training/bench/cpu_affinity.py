"""The same number of cores for each rank of a host, so that worlds of any size compare fairly.

Otherwise a rank that is alone on a host would use all of its cores, and each of two ranks half of
them: the cost of sharing cores would look like the cost of exchanging gradients.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from training.loop.world import World


def share(there: set[int], local_rank: int, each: int) -> set[int]:
    """A rank's share of the available cores; empty if there are fewer cores than ranks."""
    own = sorted(there)[local_rank * each : (local_rank + 1) * each]
    return set(own) if len(own) == each else set()


@contextmanager
def own_cores(world: World, each: int) -> Iterator[bool]:
    """Pin this thread, and those that it starts, to as many cores as every other rank has.

    Returns False if there are too few cores; then nothing is pinned.
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
