"""DDP communication hooks: what is sent instead of a gradient, and on which route.

DDP passes a hook one bucket of gradients after the other during the backward pass, and uses the
result of the future that it returns as their mean over the ranks.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    bf16_compress_hook,
    fp16_compress_hook,
)
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from training.loop.settings import TrainSettings
from training.loop.world import World
from training.stop import Stop
from training.techniques.precision import LOWER
from training.techniques.settings import NetworkSettings


def install(ddp: DistributedDataParallel, settings: TrainSettings, world: World) -> None:
    """The hook that the settings select; without one DDP is unchanged. One rank sends nothing.

    Raises Stop for one that the precision does not allow.
    """
    if world.size == 1:
        return
    if settings.hierarchical:
        two_levels = TwoLevels(settings.hierarchical, world, LOWER.get(settings.comm_hook))
        ddp.register_comm_hook(None, two_levels.reduce)
    elif settings.comm_hook == "powersgd":
        if settings.precision == "fp16":
            # Its error feedback would keep the infinity of the first step that overflows.
            raise Stop(
                "comm_hook=powersgd does not go with the loss scale of precision=fp16: "
                "take precision=bf16, or comm_hook=fp16"
            )
        state = PowerSGDState(
            process_group=None,
            matrix_approximation_rank=settings.powersgd_rank,
            start_powerSGD_iter=settings.powersgd_after,
        )
        ddp.register_comm_hook(state, powerSGD_hook if world.device.type == "cuda" else _in_turn)
    elif settings.comm_hook == "fp16":
        ddp.register_comm_hook(None, fp16_compress_hook)
    elif settings.comm_hook == "bf16":
        ddp.register_comm_hook(None, bf16_compress_hook)


def check(settings: NetworkSettings, world: World) -> None:
    """Raises Stop if such a hook is not possible."""
    ranks = settings.hierarchical
    if ranks and world.size > 1 and world.size % ranks:
        raise Stop(
            f"hierarchical={ranks} does not divide {world.size} ranks into hosts: "
            "give the number of ranks that each host has, or 0"
        )
    if ranks and settings.comm_hook == "powersgd":
        raise Stop("hierarchical goes with comm_hook none, fp16 or bf16, not with powersgd")


def not_exact(settings: TrainSettings, world: World) -> str:
    """Why a resumed run of DDP is not bit for bit the uninterrupted one, '' if it is.

    PowerSGD's error feedback is as large as the gradients, on every rank, and belongs to buckets
    that DDP creates again in its first step: it is not saved.
    """
    if world.size == 1:
        return ""
    if settings.comm_hook == "powersgd":
        return f"powersgd starts again after {settings.powersgd_after} steps with whole gradients"
    if settings.static_graph and settings.accumulate > 1:
        return "static_graph with accumulate rounds the first step in another way"
    if world.size > 2:
        # DDP sums in a ring, from another rank for each part of a bucket, and has one bucket in its
        # first step.
        return "more than two ranks round the sums of the first step in another order"
    return ""


class TwoLevels:
    """The mean over all ranks, host by host (as in Jia and others: Highly Scalable Deep Learning
    Training System with Mixed-Precision, 2018): each rank of a host sums its share of the bucket
    within the host, then with the ranks at the same position on the other hosts, and distributes it
    within the host. A host sends and receives a gradient once, independent of its number of ranks.

    Ranks of a host are consecutive, as torchrun and Ray Train number them.
    """

    def __init__(self, ranks: int, world: World, lower: torch.dtype | None) -> None:
        """`ranks` of a host; `lower` is the data type for the transfer, None for the gradient's
        own.
        """
        hosts = torch.arange(world.size).view(-1, ranks)
        self._within = _own_group(hosts.tolist())
        self._across = _own_group(hosts.T.tolist())
        self._ranks, self._size, self._lower = ranks, world.size, lower
        self._stream: torch.cuda.Stream | None = None
        if world.device.type == "cuda":
            self._stream = torch.cuda.Stream(world.device)  # type: ignore[no-untyped-call]

    def reduce(self, state: object, bucket):  # type: ignore[no-untyped-def] # DDP accepts no annotations
        """On a GPU the collectives are queued on a separate stream; on a CPU this waits for them:
        gloo runs callbacks in the threads that it needs for the next collective.
        """
        buffer = bucket.buffer()
        done: Future[Tensor]
        if self._stream is None:
            self._mean(buffer)
            done = Future()
            done.set_result(buffer)
            return done
        self._stream.wait_stream(torch.cuda.current_stream())
        done = Future(devices=[buffer.device])
        with torch.cuda.stream(self._stream):
            self._mean(buffer)
            done.set_result(buffer)
        return done

    def _mean(self, gradient: Tensor) -> None:
        """In place."""
        sent = gradient.to(self._lower or gradient.dtype) / self._size
        sent = torch.nn.functional.pad(sent, (0, -len(sent) % self._ranks))
        share = sent.new_empty(len(sent) // self._ranks)
        dist.reduce_scatter_tensor(share, sent, group=self._within)
        dist.all_reduce(share, group=self._across)
        dist.all_gather_into_tensor(sent, share, group=self._within)
        gradient.copy_(sent[: len(gradient)])


def _own_group(groups: list[list[int]]) -> dist.ProcessGroup:
    """The group of this rank; all ranks create all of them."""
    own, _ = dist.new_subgroups_by_enumeration(groups)
    assert isinstance(own, dist.ProcessGroup)
    return own


def _in_turn(state: PowerSGDState, bucket):  # type: ignore[no-untyped-def] # DDP accepts no annotations
    """PowerSGD's second collective is started by the thread that completed its first. gloo has two
    threads: two buckets at the same time would wait for each other, or mix.
    """
    done = powerSGD_hook(state, bucket)
    done.wait()
    return done
