"""A handwritten, fast training loop: the baseline for the jobs' loop."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn


def plain(
    model: nn.Module, images: Tensor, labels: Tensor, *, compiles: bool
) -> Callable[[int], float]:
    """Return a function that trains a number of steps on one batch and returns the seconds.

    bf16 autocast, channels last, torch.compile and fused SGD; no telemetry, no schedule, no
    clipping, no loss read back. The learning rate is 0, so that all steps are alike (see
    BenchSettings.for_this_run).
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
