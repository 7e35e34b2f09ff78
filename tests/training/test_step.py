"""What a step ends with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn

from tests.training.runs import few
from training import telemetry
from training.checkpoint.in_folder import FolderCheckpoints
from training.loop import train as loop
from training.loop.progress import Progress
from training.loop.settings import TrainSettings
from training.loop.step import Due, Pace, after_step, update
from training.loop.world import World
from training.parallel.single_device import Whole, whole
from training.techniques.average import Average
from training.techniques.precision import Precision
from training.techniques.schedule import schedule

SETTINGS = TrainSettings(epochs=2, save_every_epochs=2)
STEPS = 4


def progress_of(model: nn.Module, **counts: Any) -> Progress:
    world = World(0, 1, 0, torch.device("cpu"))
    parallel = Whole(model, world)
    return Progress(
        parallel,
        torch.optim.SGD(model.parameters(), lr=1.0),
        Precision("fp32", world.device),
        Average(model, 0.0),
        model="linear",
        steps=STEPS,
        **counts,
    )


@pytest.mark.parametrize(
    ("epoch", "batch", "settings", "expected"),
    [
        (0, 0, SETTINGS, Due(False, False, False)),
        (0, 3, SETTINGS, Due(True, False, False)),
        (0, 3, replace(SETTINGS, save_every_epochs=1), Due(True, False, True)),
        (1, 3, replace(SETTINGS, save_every_epochs=5), Due(True, True, True)),
        (0, 1, replace(SETTINGS, checkpoint_every_steps=2), Due(False, False, True)),
        (0, 2, replace(SETTINGS, checkpoint_every_steps=2), Due(False, False, False)),
        (0, 2, replace(SETTINGS, max_steps=3), Due(False, True, True)),
    ],
)
def test_step_is_followed_by_what_is_due(
    epoch: int, batch: int, settings: TrainSettings, expected: Due
) -> None:
    counts = {"epoch": epoch, "batch": batch, "step": epoch * STEPS + batch}
    due = after_step(settings, progress_of(nn.Linear(1, 1), **counts))
    assert due == expected
    assert due.evaluates == (expected.epoch_ends or expected.saves)


def test_update_uses_the_learning_rate_of_its_step_and_clears_the_gradients() -> None:
    model = nn.Linear(1, 1, bias=False)
    before = model.weight.item()
    progress = progress_of(model, epoch=1, batch=1, step=5)
    rates = schedule(replace(SETTINGS, learning_rate=0.1, warmup_steps=10), STEPS, 5, 256)
    model.weight.grad = torch.ones_like(model.weight)
    assert update(progress, rates) == pytest.approx(0.06)
    assert model.weight.item() == pytest.approx(before - 0.06)
    assert model.weight.grad is None


def test_pace_waits_for_the_rest_of_the_shortest_step() -> None:
    now_s, slept_s = [100.0], []

    def sleep(seconds: float) -> None:
        slept_s.append(seconds)
        now_s[0] += seconds

    with (
        patch("time.perf_counter", lambda: now_s[0]),
        patch("time.sleep", sleep),
    ):
        pace = Pace(0.5)
        now_s[0] += 0.2
        pace.wait()
        now_s[0] += 0.7
        pace.wait()
        Pace(0.0).wait()
    assert slept_s == [pytest.approx(0.3), 0.0]


@pytest.mark.parametrize("scaled", ["none", "linear", "sqrt"])
def test_learning_rate_does_not_depend_on_how_many_of_the_ranks_are_left(
    scaled: str, tmp_path: Path
) -> None:
    settings = replace(
        SETTINGS, model="mlp", width=8, scale_learning_rate=scaled, learning_rate=0.01, max_steps=3
    )
    # One rank that is left of four has their examples.
    left = rates_of(replace(settings, workers=4, batch_size=16), tmp_path / "left")
    alone = rates_of(replace(settings, workers=1, batch_size=64), tmp_path / "alone")
    assert left == alone
    assert len(left) == 3


def rates_of(settings: TrainSettings, folder: Path) -> list[float]:
    found: list[float] = []
    world = World(0, 1, 0, torch.device("cpu"))
    with (
        patch.object(telemetry, "step", lambda **numbers: found.append(numbers["learning_rate"])),
        FolderCheckpoints(folder, 0, 1) as checkpoints,
    ):
        loop.train(settings, world, checkpoints, whole, few())
    return found
