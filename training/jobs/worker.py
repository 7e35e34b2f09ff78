"""A Ray Train worker's part of a job."""

from __future__ import annotations

from typing import Any

import torch

from training.checkpoint.memory.checkpoints import MemoryCheckpoints
from training.checkpoint.on_ray import RunCheckpoints
from training.data.examples import Data, NoData
from training.data.loader import Loader
from training.jobs.fit import OnRay
from training.loop.settings import TrainSettings
from training.loop.train import Feed, Parallelizer, train
from training.loop.world import on_ray
from training.stop import Stop


def work(
    settings: TrainSettings,
    spread: Parallelizer,
    data: Data | None = None,
    feed: Feed = Loader,
    start_from: str = "",
) -> dict[str, Any]:
    """Train as a rank of a Ray Train run, with its checkpoints. `start_from`: the path of an
    initial checkpoint on the same storage, for a run that has none.

    Returns the message of a Stop, or the loop's reason for stopping: Ray Train would restart after
    an exception. Raises NoData if only this rank cannot read its examples: the others would wait
    for a rank that returned, and the next attempt may succeed.
    """
    world = on_ray()
    if world.device.type == "cpu":
        torch.set_num_threads(1)  # ranks that share a host would use each other's cores
    checkpoints = RunCheckpoints(
        in_background=settings.checkpoint_upload == "async",
        may_start_over=settings.start_over,
        start_from=start_from,
    )
    every_steps = settings.memory_every_steps if isinstance(settings, OnRay) else 0
    try:
        if not every_steps:
            return train(settings, world, checkpoints, spread, data, feed)
        from training.checkpoint.memory.on_ray import RayHolders, node_id

        holders = RayHolders(settings.run_name)
        in_memory = MemoryCheckpoints(checkpoints, holders, node_id(), world, every_steps)
        result = train(settings, world, in_memory, spread, data, feed, in_memory)
        in_memory.close()
        return result
    except NoData:  # before training, when all ranks check, it is a Stop
        raise
    except Stop as why:
        return {"stopped": str(why)}
