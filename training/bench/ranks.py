"""Ranks as processes of this host, without a launcher."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any, TypeVar

import torch.distributed as dist

from training.loop.settings import TrainSettings
from training.loop.world import World, torchrun
from training.stop import Stop
from training.techniques import environment

T = TypeVar("T")


def on_ranks(settings: TrainSettings, act: Callable[..., T], *args: Any) -> T:
    """Return what `act(world, *args)`, a module's function, returned on rank 0 of `workers`.

    Raises what the first rank to fail raised.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    size = settings.workers
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
    }
    with ProcessPoolExecutor(size, mp_context=get_context("spawn")) as pool:
        ranks = [
            pool.submit(
                _rank,
                shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                settings,
                act,
                args,
            )
            for rank in range(size)
        ]
        try:
            wait(ranks, return_when=FIRST_EXCEPTION)
            for rank in ranks:
                if rank.done():
                    rank.result()
            return ranks[0].result()
        except BaseException:
            for process in list(pool._processes.values()):
                process.kill()  # the others wait for the one that failed
            raise


def _rank(
    variables: dict[str, str],
    settings: TrainSettings,
    act: Callable[..., T],
    args: tuple[Any, ...],
) -> T:
    os.environ.update(variables)
    try:
        environment.enter(settings)
        world: World = torchrun(settings.gpu, settings.timeout_s)
    except Stop as why:
        raise Stop(str(why)) from None  # some exceptions do not pickle
    try:
        return act(world, *args)
    finally:
        dist.destroy_process_group()
