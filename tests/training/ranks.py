"""Real ranks in separate processes, with gloo between them, to test their computation."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from training.loop.world import World

T = TypeVar("T")

FORKED = get_context("forkserver")
"""Each rank is a fork of one process that has imported the slow modules, and done nothing else."""
FORKED.set_forkserver_preload(
    [
        "torch.distributed.checkpoint",
        "torch.distributed.fsdp",
        "torch.distributed.pipelining",
        "torch.distributed.tensor",
        "tests.training.runs",
        "tests.training.ranks",
        "tests.training.replica_process",
    ]
)


def on_ranks(size: int, act: Callable[..., T], *args: Any, timeout_s: float = 120.0) -> list[T]:
    """What `act(world, *args)` returned on each rank, in order; `act` is a module's function.

    Raises what the first rank to fail raised.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ProcessPoolExecutor(size, mp_context=FORKED) as pool:
        ranks = [
            pool.submit(_rank, dict(os.environ), rank, size, port, act, args)
            for rank in range(size)
        ]
        try:
            return [rank.result(timeout_s) for rank in ranks]
        except BaseException:
            for process in list(pool._processes.values()):
                process.kill()  # the others wait for the failed one
            raise


def _rank(
    environment: Mapping[str, str],
    rank: int,
    size: int,
    port: int,
    act: Callable[..., T],
    args: tuple[Any, ...],
) -> T:
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size
    )
    try:
        return act(World(rank, size, rank, torch.device("cpu")), *args)
    finally:
        dist.destroy_process_group()
