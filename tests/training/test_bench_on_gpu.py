"""The benchmark's edge of memory and its memory snapshot on a real device, where there is one."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from training.bench import tracing
from training.bench.batches import one
from training.bench.settings import BenchSettings
from training.data import load
from training.loop.world import alone

pytestmark = pytest.mark.gpu
SETTINGS = BenchSettings(quick=True, workers=1).for_this_run()


def test_a_batch_that_does_not_fit_leaves_the_memory_free_for_one_that_does() -> None:
    world, data = alone("true"), load(SETTINGS)
    there = torch.cuda.mem_get_info(world.device)[1]
    torch.cuda.set_per_process_memory_fraction(0.5e9 / there)
    try:
        assert one(world, replace(SETTINGS, batch_size=1 << 17), data, there) is None
        fits = one(world, replace(SETTINGS, batch_size=64), data, there)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert fits is not None
    assert 0 < fits.peak_bytes < 0.5e9
    assert fits.samples_per_s > 0


def test_memory_is_left_as_a_snapshot_with_the_loops_allocations(tmp_path: Path) -> None:
    traced = tracing.measure(alone("true"), SETTINGS, tmp_path)
    snapshot = pickle.loads((tmp_path / traced.memory).read_bytes())
    assert snapshot["segments"]
    assert any(snapshot["device_traces"])
    assert traced.operations[0].self_s > 0
