"""A training loop as one writes it by hand for speed: what the loop of all jobs is held against."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn


def plain(
    model: nn.Module, images: Tensor, labels: Tensor, *, compiles: bool
) -> Callable[[int], float]:
    """Makes a function that trains so many steps on one batch and returns the seconds they took.

    bf16 autocast, channels last, torch.compile and fused SGD; no telemetry, no schedule, no clip,
    no loss read back. The rate is 0, so that all steps are alike (see BenchSettings.for_this_run).
    """
    device = images.device
    model = model.to(device).to(memory_format=torch.channels_last).train()
    images = images.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9, fused=True)
    if compiles:
        model.compile()

    def turn(steps: int) -> float:
        synchronize()
        began = time.perf_counter()
        for _ in range(steps):
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        synchronize()
        return time.perf_counter() - began

    def synchronize() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return turn
