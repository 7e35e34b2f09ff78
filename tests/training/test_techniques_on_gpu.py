"""Techniques that can only be tested on a real device."""

from __future__ import annotations

import math
import time

import pytest
import torch

from training.loop.divergence import Finite
from training.loop.settings import TrainSettings
from training.loop.world import World
from training.stop import Stop
from training.techniques import memory

pytestmark = pytest.mark.gpu


def test_a_step_is_looked_at_without_waiting_for_what_is_queued() -> None:
    device = torch.device("cuda", 0)
    finite = Finite(device, skips_steps=False)
    matrix = torch.ones(8192, 8192, device=device, dtype=torch.bfloat16)
    matrix @ matrix
    loss = torch.tensor(1.0, device=device)
    finite.step(1, loss, loss)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(200):
        matrix @ matrix
    finite.step(2, loss, loss * math.nan)
    assert finite.first_wrong() is None
    looked_s = time.perf_counter() - began
    torch.cuda.synchronize()
    assert looked_s < (time.perf_counter() - began) / 2
    assert finite.first_wrong(newest=True) == (2, 1.0)


def test_memory_that_the_device_does_not_have_is_reported_with_its_name() -> None:
    @memory.explained
    def asks(settings: TrainSettings, world: World) -> torch.Tensor:
        return torch.empty(2**50, dtype=torch.uint8, device=world.device)

    with pytest.raises(Stop) as reported:
        asks(TrainSettings(), World(0, 1, 0, torch.device("cuda", 0)))
    had, _, advice = str(reported.value).partition("; ")
    assert torch.cuda.get_device_name(0) in had
    assert "GiB more" in had
    assert "precision=bf16" in advice
