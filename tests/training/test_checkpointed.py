"""The job's training loop without Ray: it learns, stops on NaN, and resumes exactly."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.training.test_worker import ListSink
from training import telemetry
from training.checkpoint.in_folder import FolderCheckpoints
from training.checkpoint.storage import PREFIX
from training.jobs.checkpointed import Settings
from training.loop import generators
from training.loop import train as loop
from training.loop.world import World
from training.parallel.replicated import replicated
from training.parallel.single_device import whole
from training.stop import Stop
from training.telemetry.worker.worker import RankTelemetry

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = Settings(workers=1, batch_size=64, width=8, checkpoint_every_steps=10, epochs=5)
"""23 steps an epoch."""


CPU = torch.device("cpu")
ALONE = World(0, 1, 0, CPU)


class Half(World):
    """One of two ranks; the other neither trains nor responds."""

    def total(self, value: Tensor) -> Tensor:
        return value


class Killed(Exception):
    pass


class Reported(FolderCheckpoints):
    """A run of one rank, whose metrics are stored."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 0, 1, in_background=False, keep=99)
        self.reports: list[dict[str, float]] = []

    def report(self, metrics: Mapping[str, float], step: int, states: Mapping[str, Any]) -> None:
        self.reports.append(dict(metrics))
        super().report(metrics, step, states)


def train(settings: Settings, checkpoints: Reported, world: World = ALONE) -> dict[str, Any]:
    with checkpoints:
        return loop.train(settings, world, checkpoints, replicated)


def test_a_step_takes_no_less_than_the_shortest_time_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_s: list[float] = []
    monkeypatch.setattr(telemetry, "step", lambda **_: ended_s.append(time.perf_counter()))
    train(replace(SMALL, max_steps=4, min_step_s=0.15), Reported(tmp_path))
    assert len(ended_s) == 4
    assert min(later - earlier for earlier, later in pairwise(ended_s)) > 0.14


def losses_of(
    settings: Settings,
    directory: Path,
    patch: pytest.MonkeyPatch,
    die_at: int = 0,
    on_step: Callable[[], None] = lambda: None,
) -> dict[int, float]:
    losses: dict[int, float] = {}

    def step(*, loss: float, step: int = 0, **_: Any) -> None:
        on_step()
        if step == die_at and die_at:
            raise Killed
        losses[step] = float(loss)

    with patch.context() as patched:
        patched.setattr(telemetry, "step", step)
        train(settings, Reported(directory))
    return losses


@pytest.mark.parametrize("die_at", [20, 31, 47, 58])
def test_a_killed_run_resumes_with_the_very_same_losses(
    die_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deaths within the first one, just after a checkpoint, and later."""
    settings = replace(SMALL, max_steps=60)
    smooth, broken = tmp_path / "smooth", tmp_path / "broken"
    smooth.mkdir()
    broken.mkdir()
    expected = losses_of(settings, smooth, monkeypatch)
    with pytest.raises(Killed):
        losses_of(settings, broken, monkeypatch, die_at)
    newest = int(max(broken.iterdir()).name.removeprefix(PREFIX))
    torch.manual_seed(123)  # a new process begins with other generators
    random.seed(123)
    np.random.seed(123)
    resumed = losses_of(settings, broken, monkeypatch)
    assert sorted(resumed) == list(range(newest + 1, 61)), "no step is skipped or done twice"
    assert resumed == {step: expected[step] for step in resumed}


def test_a_finished_run_that_is_run_again_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(workers=1, batch_size=64, width=8, epochs=1)
    assert len(losses_of(settings, tmp_path, monkeypatch)) == 23
    assert losses_of(settings, tmp_path, monkeypatch) == {}


def test_a_run_that_had_its_last_step_does_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does one that dies between its last checkpoint and its end."""
    settings = replace(SMALL, max_steps=12)
    assert len(losses_of(settings, tmp_path, monkeypatch)) == 12
    assert losses_of(settings, tmp_path, monkeypatch) == {}


def test_ddp_only_settings_do_not_affect_the_resume_of_other_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = replace(SMALL, workers=2, comm_hook="powersgd", epochs=1)
    two = Half(0, 2, 0, CPU)
    for max_steps in (1, 2):
        with Reported(tmp_path) as checkpoints:
            loop.train(replace(settings, max_steps=max_steps), two, checkpoints, whole)
    text = capsys.readouterr().out
    assert "resumed at step 1, exactly" in text
    assert "without effect here: comm_hook" in text


def test_examples_to_evaluate_on_that_do_not_go_round_are_missed_before_the_first_step(
    tmp_path: Path,
) -> None:
    settings = Settings(data="synthetic", shape="1x8x8", examples=8, model="mlp", workers=2)
    rank = Reported(tmp_path)
    with pytest.raises(Stop, match="1 examples to evaluate on do not go round 2 ranks"):
        train(settings, rank, Half(0, 2, 0, CPU))
    assert rank.reports == []


@pytest.mark.slow
def test_complete_run_classifies_97_percent_of_held_out_digits(tmp_path: Path) -> None:
    rank = Reported(tmp_path)
    result = train(Settings(workers=1, epochs=12, width=32), rank)
    assert result["accuracy"] >= 0.97
    assert rank.reports[-1]["accuracy"] == result["accuracy"]
    assert rank.reports[-1]["epoch"] == 12


def test_a_loss_that_is_not_finite_stops_it_and_names_step_and_rank(tmp_path: Path) -> None:
    settings = Settings(workers=1, epochs=1, width=8, learning_rate=1e30)
    stopped = train(settings, Reported(tmp_path))["stopped"]
    assert stopped.startswith("the loss became nan at step ")
    assert stopped.endswith(" on rank 0")


def test_a_loss_that_is_not_finite_is_let_through_when_asked(tmp_path: Path) -> None:
    settings = Settings(
        workers=1, epochs=1, width=8, learning_rate=1e30, stop_on_nan=False, max_steps=9
    )
    assert train(settings, Reported(tmp_path))["step"] == 9


@pytest.mark.timed
def test_steps_report_section_times_and_model_flops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = ListSink()
    rank = RankTelemetry(0, 1, sink)
    monkeypatch.setattr(telemetry, "_rank", rank)
    reported: list[float] = []
    monkeypatch.setattr(
        telemetry, "model", lambda flops_per_sample: reported.append(flops_per_sample)
    )
    train(Settings(workers=1, batch_size=64, width=8, max_steps=12), Reported(tmp_path))
    rank.push()
    (record,) = sink.records
    parts = [record.data_wait_s, record.forward_s, record.backward_s, record.optimizer_s]
    assert all(part is not None and part > 0 for part in parts)
    assert record.step_time_s is not None
    assert 0.5 < sum(part or 0.0 for part in parts) / record.step_time_s <= 1.0
    # Convolutions 1→8→8 at 8×8 and 8→16→16 at 4×4, 3×3 each, and 64→10: two FLOPs a multiplication
    # and addition, twice that backward, except for the first's input, which needs no gradient.
    first = 2 * 64 * 9 * 8
    rest = 2 * (64 * 9 * 8 * 8 + 16 * 9 * 8 * 16 + 16 * 9 * 16 * 16 + 64 * 10)
    assert reported == [2 * first + 3 * rest]


def test_a_damaged_checkpoint_costs_the_steps_since_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(SMALL, max_steps=40)
    smooth, broken = tmp_path / "smooth", tmp_path / "broken"
    expected = losses_of(settings, smooth, monkeypatch)
    with pytest.raises(Killed):
        losses_of(settings, broken, monkeypatch, die_at=35)
    newest = max(broken.iterdir()) / "model.pt"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert losses_of(settings, broken, monkeypatch) == {
        step: loss for step, loss in expected.items() if step > 23
    }, "the checkpoint of step 30 is left out: the one before is of the epoch's end"


def test_with_other_ranks_each_step_keeps_its_examples_and_its_learning_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two workers were wanted, and one is there from step 31 on."""
    settings = Settings(workers=2, batch_size=32, width=8, checkpoint_every_steps=10, epochs=3)
    reported: dict[int, dict[str, float]] = {}

    def step(*, step: int = 0, **numbers: float) -> None:
        reported[step] = numbers

    monkeypatch.setattr(telemetry, "step", step)
    train(replace(settings, max_steps=40), Reported(tmp_path / "alone"))
    expected = dict(reported)
    train(replace(settings, max_steps=30), Reported(tmp_path / "pair"), Half(0, 2, 0, CPU))
    rank = Reported(tmp_path / "pair")
    train(replace(settings, max_steps=40), rank)
    assert "resumed at step 30, saved by 2 ranks, now 1: same examples" in capsys.readouterr().out
    for at in range(31, 41):
        for name in ("samples", "learning_rate", "epoch"):
            assert reported[at][name] == expected[at][name], (at, name)
    assert rank.reports[-1]["epoch"] == pytest.approx(40 / 23)


def test_batches_of_another_size_start_the_epoch_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = replace(SMALL, max_steps=30)
    losses_of(first, tmp_path, monkeypatch)
    rank = Reported(tmp_path)
    result = train(Settings(workers=1, batch_size=128, width=8, max_steps=32, epochs=5), rank)
    assert result["step"] == 32
    assert rank.reports[-1]["epoch"] == pytest.approx(1 + 2 / 12)
    assert "batches of another size, so epoch 2 begins again" in capsys.readouterr().out


def test_generators_are_restored_from_a_file_that_holds_no_code(tmp_path: Path) -> None:
    torch.save(generators.states(), tmp_path / "g.pt")

    def draw() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    expected = draw()
    generators.restore(torch.load(tmp_path / "g.pt", weights_only=True))
    assert draw() == expected
