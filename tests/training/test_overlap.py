"""DDP's exposed all-reduce, from real DDP modules over gloo."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.training.ranks import on_ranks
from tests.training.test_worker import ListSink
from training import telemetry
from training.loop.world import World
from training.telemetry.worker.overlap import RATE_ON_GPU, Overlap
from training.telemetry.worker.worker import RankTelemetry

LATE_S = 0.2
STEPS = 12


def seeded() -> nn.parallel.DistributedDataParallel:
    torch.manual_seed(0)
    return nn.parallel.DistributedDataParallel(nn.Linear(64, 64))


def exposed(world: World) -> list[float]:
    """Rank 0 is late at every step; what each rank was exposed to, in seconds."""
    parallel = seeded()
    overlap = Overlap(parallel)
    found: list[float] = []
    for _ in range(STEPS):
        if world.rank == 0:
            time.sleep(LATE_S)
        torch.autograd.backward(parallel(torch.ones(8, 64)).sum())
        newest = overlap.read()
        found.append(0.0 if newest is None else newest.seconds)
    return found


def test_waiting_rank_reports_communication_and_the_late_rank_none() -> None:
    late, waits = on_ranks(2, exposed)
    # A step's times are reported when the next one begins, and after the first DDP rebuilds its
    # buckets.
    assert median(waits[3:]) > 0.8 * LATE_S
    assert median(late[3:]) < 0.5 * LATE_S


@pytest.fixture
def parallel(tmp_path: Path) -> Any:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield seeded()
    dist.destroy_process_group()


def step(module: nn.Module) -> None:
    torch.autograd.backward(module(torch.ones(8, 64)).sum())


def test_before_a_step_was_timed_nothing_is_reported(
    parallel: nn.parallel.DistributedDataParallel,
) -> None:
    overlap = Overlap(parallel)
    assert overlap.read() is None
    for _ in range(3):
        step(parallel)
    exposed = overlap.read()
    assert exposed is not None
    assert 0 <= exposed.seconds < 1
    assert 0 <= exposed.share < 1


@pytest.mark.parametrize(
    ("step_time_s", "expected"), [(0.1, 10), (0.001, RATE_ON_GPU), (5.0, 1), (None, RATE_ON_GPU)]
)
def test_on_a_cpu_about_a_step_a_second_is_timed(
    step_time_s: float | None, expected: int, parallel: nn.parallel.DistributedDataParallel
) -> None:
    overlap = Overlap(parallel)
    overlap.pace(step_time_s, 1.0)
    assert overlap._rate == expected
    for _ in range(31):
        step(parallel)
    reported: dict[str, int] = parallel._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    assert reported["iteration"] == max(
        each for each in range(31) if each <= 10 or not each % expected
    )


def test_on_a_gpu_ddp_is_left_to_its_own_rate(
    parallel: nn.parallel.DistributedDataParallel,
) -> None:
    parallel.device_type = "cuda"
    overlap = Overlap(parallel)
    overlap.pace(5.0, 1.0)
    assert overlap._rate == RATE_ON_GPU


def test_the_module_is_not_kept_alive(parallel: nn.parallel.DistributedDataParallel) -> None:
    class Module:
        device_type = "cpu"
        _get_ddp_logging_data = _set_ddp_runtime_logging_sample_rate = None

    module = Module()
    overlap = Overlap(module)
    del module
    gc.collect()
    assert overlap.read() is None
    overlap.pace(1.0, 1.0)


class Told:
    """The values of DDP's logger."""

    device_type = "cpu"

    def _get_ddp_logging_data(self) -> dict[str, int]:
        return {
            "backward_comm_time": 50_000_000,
            "backward_compute_comm_overlap_time": 20_000_000,
            "backward_compute_time": 90_000_000,
        }

    def _set_ddp_runtime_logging_sample_rate(self, sample_rate: int) -> None:
        return


@pytest.mark.parametrize(
    ("sections", "backward_s", "comm_s"),
    [
        ({"backward": 0.2, "communication": 0.005}, 0.15, 0.055),  # 30 of 120 ms
        ({}, None, 0.03),
    ],
)
def test_exposed_communication_is_subtracted_from_backward(
    sections: dict[str, float],
    backward_s: float | None,
    comm_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = ListSink()
    rank = RankTelemetry(0, 1, sink)
    monkeypatch.setattr(telemetry, "_rank", rank)
    monkeypatch.setattr(rank._sections, "take", lambda: sections)
    module = Told()
    telemetry.ddp(module)
    assert rank._exposed is not None
    rank._exposed.read()
    telemetry.step()
    rank.push()
    rank.close()
    (record,) = sink.records
    assert record.backward_s == (None if backward_s is None else pytest.approx(backward_s))
    assert record.comm_s == pytest.approx(comm_s)


def test_module_that_is_not_ddp_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rank = RankTelemetry(0, 1, ListSink())
    monkeypatch.setattr(telemetry, "_rank", rank)
    telemetry.ddp(nn.Linear(1, 1))
    telemetry.ddp(3)
    (warning,) = caplog.records
    assert "Linear" in warning.getMessage()
