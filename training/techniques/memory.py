"""The limit of a rank's device memory, its allocator, and advice when memory is exhausted."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch

from training.loop.settings import TrainSettings
from training.loop.world import World
from training.stop import Stop
from training.techniques.settings import SpeedSettings

P = ParamSpec("P")
T = TypeVar("T")
GIB = 2**30


def variables(settings: SpeedSettings) -> dict[str, str]:
    """Call in a rank's process before it uses a GPU."""
    return {"PYTORCH_ALLOC_CONF": settings.allocator} if settings.allocator else {}


def limit(settings: SpeedSettings, device: torch.device) -> None:
    if device.type == "cuda" and settings.memory_fraction < 1.0:
        torch.cuda.set_per_process_memory_fraction(settings.memory_fraction, device)


class OutOfMemory(RuntimeError):
    """A rank needed more memory than available."""


class OutOfMemoryAlone(OutOfMemory, Stop):
    """The same if no other rank waits."""


def explained(
    train: Callable[Concatenate[TrainSettings, World, P], T],
) -> Callable[Concatenate[TrainSettings, World, P], T]:
    """If `train` runs out of memory, raise OutOfMemory with advice: an error that ends the attempt,
    since the other ranks wait for this one. Without other ranks, it is a Stop too.
    """

    @wraps(train)
    def trains(settings: TrainSettings, world: World, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return train(settings, world, *args, **kwargs)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            reported = out_of_memory(error, settings, world.device)
        kind = OutOfMemory if world.size > 1 else OutOfMemoryAlone
        raise kind(f"rank {world.rank} {reported}")  # without the frames that reference its tensors

    return trains


def is_out_of_memory(error: BaseException) -> bool:
    """On a CPU torch raises a plain RuntimeError (c10/core/impl/alloc_cpu.cpp)."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def out_of_memory(error: BaseException, settings: TrainSettings, device: torch.device) -> str:
    """The needed and the available memory, and the settings that are left to try, best first: in
    one line, since the reason of a run is the last line of its error.
    """
    if device.type == "cuda":
        peak, there = torch.cuda.max_memory_allocated(device), torch.cuda.mem_get_info(device)[1]
        name = f"{device} ({torch.cuda.get_device_name(device)})"
    else:
        peak, there, name = *_of_the_host(), "its host"
    wanted = re.search(r"allocate ([\d.]+ [KMGT]?i?B|\d+ bytes)", str(error))
    more = f", and asked for {wanted[1]} more" if wanted else ""
    has = there * settings.memory_fraction if device.type == "cuda" else there
    return (
        f"ran out of memory: it had {peak / GIB:.2f} of the {has / GIB:.2f} GiB of {name} at its "
        f"peak{more}; what helps, best first: {'; '.join(remedies(settings, device))}"
    )


def remedies(settings: TrainSettings, device: torch.device) -> list[str]:
    """Settings that are not in use yet, from the cheapest to the most expensive."""
    on_gpu = device.type == "cuda"
    left = []
    if on_gpu and "expandable_segments" not in settings.allocator:
        left.append("allocator=expandable_segments:True, where much is reserved and not used")
    if on_gpu and settings.memory_fraction < 1.0:
        left.append("memory_fraction=1.0")
    if on_gpu and settings.precision in ("fp32", "tf32"):
        left.append("precision=bf16")
    if settings.batch_size > 1:
        half, twice = -(-settings.batch_size // 2), settings.accumulate * 2
        left.append(f"batch_size={half} with accumulate={twice}, for the same steps")
    if not settings.activation_checkpointing:
        left.append("activation_checkpointing=true")
    if settings.ema_decay:
        left.append("ema_decay=0")
    return [*left, "the job fsdp2, where each rank holds a part of the model"]


def _of_the_host() -> tuple[int, int]:
    """The peak memory of this process, and the total memory, in bytes."""
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak_kib * 1024, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
