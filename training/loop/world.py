"""The ranks of a run, and the communication between them.

The same training loop runs in one process, under torchrun and under Ray Train: only the function
that creates its `World` differs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from training.stop import Stop

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """One rank's view. Call collective methods on every rank."""

    rank: int
    size: int
    local_rank: int
    """The number among the ranks of its host."""
    device: torch.device

    def mean(self, value: Tensor) -> Tensor:
        """The mean over the ranks, of a tensor on the device."""
        return self.total(value) / self.size

    def total(self, value: Tensor) -> Tensor:
        summed = value.detach().clone()
        if self.size > 1:
            dist.all_reduce(summed)
        return summed

    def gather(self, value: float) -> list[float]:
        """Every rank's value, in order."""
        if self.size == 1:
            return [value]
        own = torch.tensor(value, dtype=torch.float64, device=self.device)
        every = [torch.zeros_like(own) for _ in range(self.size)]
        dist.all_gather(every, own)
        return [float(item) for item in every]

    def gather_all(self, value: T) -> list[T]:
        """Every rank's value, in order; of anything that pickles."""
        every = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(every, value)
        return every

    def together(self, act: Callable[[], T]) -> T:
        """The result of `act` on every rank. A Stop on one rank stops all, which would otherwise
        wait for that rank: raises Stop on every rank, with the message of the first that has one.
        """
        why = ""
        try:
            done = act()
        except Stop as error:
            why = str(error)
        stopped = torch.tensor(float(bool(why)), device=self.device)
        if not self.total(stopped):
            return done
        reasons = self.gather_all(why)
        rank = next(rank for rank, sentence in enumerate(reasons) if sentence)
        raise Stop(reasons[rank] if all(reasons) else f"rank {rank}: {reasons[rank]}")

    def wait(self) -> None:
        """Wait until all ranks have called it."""
        if self.size > 1:
            dist.barrier()


def alone(gpu: str = "auto") -> World:
    """A world of one process."""
    return World(0, 1, 0, device(0, gpu))


def torchrun(gpu: str, timeout_s: float) -> World:
    """The world of `torchrun`'s environment: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and _PORT.

    Creates the process group: NCCL on GPUs, gloo on CPUs.
    """
    local_rank, here = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    # On all ranks of this host or on none: the last rank is the one whose GPU may be missing.
    chosen = device(here - 1, gpu)
    if chosen.type == "cuda":
        chosen = torch.device("cuda", local_rank)
        torch.cuda.set_device(chosen)
    dist.init_process_group(
        "nccl" if chosen.type == "cuda" else "gloo", timeout=timedelta(seconds=timeout_s)
    )
    return World(dist.get_rank(), dist.get_world_size(), local_rank, chosen)


def on_ray() -> World:
    """A rank of a Ray Train run, which created the process group."""
    import ray.train
    import ray.train.torch

    context, device = ray.train.get_context(), ray.train.torch.get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return World(
        context.get_world_rank(), context.get_world_size(), context.get_local_rank(), device
    )


def device(local_rank: int, gpu: str) -> torch.device:
    """Raises NoGpu if a GPU is requested and there is none."""
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpu == "true" and found <= local_rank:
        why = (
            f"this process sees {found} of them"
            if torch.version.cuda
            else "this torch was built without CUDA"
        )
        raise NoGpu(
            f"gpu=true, but rank {local_rank} of this host has no GPU: {why}; "
            "gpu=false trains on the CPU, nvidia-smi shows what the host has"
        )
    if gpu == "false" or found <= local_rank:
        return torch.device("cpu")
    return torch.device("cuda", local_rank)


class NoGpu(Stop):
    """CUDA was requested and is not available."""
