"""`checkpoint_every=auto`: the interval between saves, from what a save and a failure cost."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.training.test_checkpointed import ALONE, SMALL, Killed, losses_of
from training.checkpoint.storage import PREFIX
from training.jobs.tune import Settings as SearchSettings
from training.jobs.tune import check
from training.loop import save_interval
from training.loop.progress import COUNTS
from training.loop.save_interval import BETWEEN_RANK_S, SaveInterval, best_interval_s
from training.loop.world import World

AUTO = replace(SMALL, checkpoint_every_steps=0, checkpoint_every="auto", epochs=50, max_steps=60)


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, reading_s: float = 0.0) -> None:
        self.now_s = 1_000.0
        self._reading_s = reading_s
        monkeypatch.setattr(time, "monotonic", self.read)

    def read(self) -> float:
        self.now_s += self._reading_s
        return self.now_s

    def count_step(self) -> None:
        self.now_s += 0.05


def progress(step: int = 0, trained_s: float = 0.0, interruptions: int = 0) -> Any:
    return SimpleNamespace(step=step, trained_s=trained_s, interruptions=interruptions)


def test_the_interval_is_youngs() -> None:
    assert best_interval_s(2.0, 3_600.0) == pytest.approx(120.0)
    cost_s, between_s = 2.0, 3_600.0

    def lost(interval_s: float) -> float:
        return cost_s / interval_s + interval_s / (2 * between_s)

    assert all(lost(120.0) < lost(120.0 * factor) for factor in (0.5, 0.9, 1.1, 2.0))


def test_the_next_save_is_planned_from_the_mean_cost_and_the_pace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, state = Clock(monkeypatch), progress(trained_s=0.0, interruptions=0)
    plan = SaveInterval(state, ALONE)
    assert [step for step in (49, 50, 51) if plan.is_due(step)] == [50, 51]
    clock.now_s += 50 * 0.2
    state.step = 50
    plan.count_time()
    clock.now_s += 4.0
    plan.plan(4.0)
    assert state.trained_s == pytest.approx(10.0)
    steps = round(math.sqrt(2 * 4.0 * BETWEEN_RANK_S) / 0.2)
    assert [step for step in (50 + steps - 1, 50 + steps) if plan.is_due(step)] == [50 + steps]


def test_interruptions_of_the_run_replace_the_published_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Clock(monkeypatch)
    eight = World(0, 8, 0, torch.device("cpu"))
    assert SaveInterval(progress(), eight).between_s == pytest.approx(BETWEEN_RANK_S / 8)
    after = SaveInterval(progress(trained_s=3_600.0, interruptions=3), eight)
    assert after.between_s == pytest.approx(1_200.0)


def test_a_killed_run_saves_more_often_and_resumes_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step takes 50 ms and a save at least 1 ms, on a busy machine too."""
    monkeypatch.setattr(save_interval, "FIRST_STEPS", 7)
    clock = Clock(monkeypatch, reading_s=0.001)
    smooth, broken = tmp_path / "smooth", tmp_path / "broken"
    smooth.mkdir()
    broken.mkdir()
    expected = losses_of(AUTO, smooth, monkeypatch, on_step=clock.count_step)
    ends_of_epochs = {23, 46, 60}
    assert saved_steps(smooth) == ends_of_epochs | {7}, "a save is cheap, and nothing failed yet"
    with pytest.raises(Killed):
        losses_of(AUTO, broken, monkeypatch, die_at=20, on_step=clock.count_step)
    assert saved_steps(broken) == {7}
    resumed = losses_of(AUTO, broken, monkeypatch, on_step=clock.count_step)
    assert resumed == {step: expected[step] for step in range(8, 61)}
    assert saved_steps(broken) > ends_of_epochs | {7, 14}, "it failed within a second"
    newest = max(broken.iterdir()) / COUNTS
    assert torch.load(newest, weights_only=True)["interruptions"] == 1


def saved_steps(directory: Path) -> set[int]:
    return {int(path.name.removeprefix(PREFIX)) for path in directory.iterdir()}


def test_a_search_by_whole_epochs_refuses_it() -> None:
    with pytest.raises(SystemExit, match="not for pbt"):
        check(SearchSettings(scheduler="pbt", checkpoint_every="auto"), ())
