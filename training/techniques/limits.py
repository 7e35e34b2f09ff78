"""Check whether the enabled techniques are available here, and which of them have no effect."""

from __future__ import annotations

from dataclasses import fields

import torch

from training.loop.settings import TrainSettings
from training.loop.world import World
from training.stop import Stop
from training.techniques import attention, compiled, hooks
from training.techniques.settings import NetworkSettings

OF_DDP = ("comm_hook", "hierarchical", "bucket_mb", "static_graph")
"""Settings that only affect DDP."""


def check(settings: TrainSettings, world: World) -> None:
    """Raises Stop with what is not available, and with alternatives, before anything is built."""
    hooks.check(settings, world)
    if settings.compile:
        compiled.check(world.device)
    if has_attention(settings.model):
        attention.check(
            settings.attention, world.device, settings.precision, max(0.0, settings.dropout)
        )
    if settings.allocator and world.device.type == "cuda":
        try:  # The process has them from its environment; setting them again changes nothing.
            torch._C._accelerator_setAllocatorSettings(settings.allocator)
        except ValueError as error:
            raise Stop(
                f"allocator={settings.allocator} is not understood: {error}; "
                "PYTORCH_ALLOC_CONF in torch's notes on CUDA lists the settings"
            ) from error


def without_effect(settings: TrainSettings, world: World, *, uses_ddp: bool = True) -> list[str]:
    """A sentence for each setting without effect. `uses_ddp`: as in Parallel."""
    on_gpu = world.device.type == "cuda"
    is_old = on_gpu and torch.cuda.get_device_capability(world.device) < (8, 0)
    nccl = (settings.infiniband, settings.nccl_algorithm, settings.nccl_debug)
    usual = {item.name: item.default for item in fields(NetworkSettings)}
    of_ddp = [name for name in OF_DDP if getattr(settings, name) != usual[name]]
    exchanges = uses_ddp and world.size > 1
    idle = {
        "precision=tf32 is of NVIDIA GPUs since Ampere": settings.precision == "tf32"
        and (is_old or not on_gpu),
        "precision=bf16 is computed in fp32 by GPUs before Ampere": settings.precision == "bf16"
        and is_old,
        "memory_fraction is of a GPU's memory": settings.memory_fraction < 1.0 and not on_gpu,
        "allocator is of a GPU's memory": bool(settings.allocator) and not on_gpu,
        "CPUs use gloo, and infiniband, nccl_algorithm and nccl_debug are of NCCL": not on_gpu
        and nccl != ("auto", "auto", "auto"),
        f"{', '.join(of_ddp)}: of what ranks send each other by DDP": bool(of_ddp)
        and not exchanges,
        f"dropout={settings.dropout:g}: {settings.model} has none": settings.dropout > 0
        and settings.model.startswith(("resnet", "simple_cnn")),
        f"attention={settings.attention}: {settings.model} has none": settings.attention != "auto"
        and not has_attention(settings.model),
        f"channels_last: {settings.model} takes no images": settings.channels_last
        and settings.model.startswith("gpt"),
    }
    return [f"without effect here: {why}" for why, is_idle in idle.items() if is_idle]


def has_attention(model: str) -> bool:
    return model.startswith(("gpt", "vit"))
