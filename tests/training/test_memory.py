"""A rank that runs out of memory reports its use, the available memory, and remedies."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from training.loop.settings import TrainSettings
from training.loop.world import World
from training.stop import Stop
from training.techniques import memory

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
SETTINGS = TrainSettings(batch_size=15)


@memory.explained
def asks_for(settings: TrainSettings, world: World, size_bytes: int) -> torch.Tensor:
    return torch.empty(size_bytes, dtype=torch.uint8)


def test_memory_that_the_host_does_not_have_is_reported_in_a_line() -> None:
    with pytest.raises(memory.OutOfMemory) as reported:
        asks_for(SETTINGS, World(3, 4, 3, CPU), 2**60)
    had, _, advice = str(reported.value).partition("; ")
    assert had.startswith("rank 3 ran out of memory: it had ")
    assert had.endswith(f" GiB of its host at its peak, and asked for {2**60} bytes more")
    assert advice == (
        "what helps, best first: batch_size=8 with accumulate=2, for the same steps; "
        "activation_checkpointing=true; the job fsdp2, where each rank holds a part of the model"
    )
    assert reported.value.__cause__ is None
    assert reported.value.__context__ is None, "frames would hold the tensors"


def test_a_rank_that_is_alone_stops() -> None:
    with pytest.raises(Stop, match=r"rank 0 ran out of memory: it had ") as reported:
        asks_for(SETTINGS, World(0, 1, 0, CPU), 2**60)
    assert isinstance(reported.value, memory.OutOfMemory)


def test_other_errors_are_not_reported_as_out_of_memory() -> None:
    world = World(0, 1, 0, CPU)
    assert len(asks_for(SETTINGS, world, 8)) == 8
    with pytest.raises(RuntimeError, match="negative dimension") as raised:
        asks_for(SETTINGS, world, -1)
    assert not isinstance(raised.value, memory.OutOfMemory)


def test_on_a_gpu_what_costs_nothing_comes_first() -> None:
    assert [remedy.partition(",")[0] for remedy in memory.remedies(SETTINGS, GPU)] == [
        "allocator=expandable_segments:True",
        "precision=bf16",
        "batch_size=8 with accumulate=2",
        "activation_checkpointing=true",
        "the job fsdp2",
    ]


def test_setting_that_is_already_enabled_is_not_advised() -> None:
    settings = replace(
        SETTINGS,
        batch_size=1,
        precision="bf16",
        activation_checkpointing=True,
        allocator="expandable_segments:True",
    )
    assert memory.remedies(settings, GPU) == [
        "the job fsdp2, where each rank holds a part of the model"
    ]
    share = replace(settings, memory_fraction=0.5, ema_decay=0.99)
    assert memory.remedies(share, GPU)[:2] == ["memory_fraction=1.0", "ema_decay=0"]


def test_the_error_of_a_gpu_is_known_too() -> None:
    assert memory.is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory."))
    assert not memory.is_out_of_memory(RuntimeError("CUDA error: an illegal access"))
