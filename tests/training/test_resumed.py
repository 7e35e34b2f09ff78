"""A resumed run is bit for bit the one that was not interrupted, with every switch; a checkpoint
of another run is refused with a sentence.
"""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.ranks import on_ranks
from training import telemetry
from training.checkpoint.in_folder import FolderCheckpoints
from training.loop.progress import COUNTS
from training.loop.settings import TrainSettings
from training.loop.train import train
from training.loop.world import World, alone
from training.parallel.replicated import replicated
from training.stop import Stop
from training.techniques.hooks import not_exact

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = TrainSettings(workers=1, batch_size=8, width=4, max_steps=14, warmup_steps=3)
SWITCHED = {
    "accumulated, average, bf16": replace(
        SMALL, accumulate=2, ema_decay=0.99, precision="bf16", loader_workers=1
    ),
    "fp16, sgd": replace(SMALL, precision="fp16", optimizer="sgd", learning_rate=0.1),
    "computed again, smoothed, fused, channels last": replace(
        SMALL, activation_checkpointing=True, label_smoothing=0.1, fused=True, channels_last=True
    ),
}


def learn(world: World, folder: Path, settings: TrainSettings) -> dict[int, float]:
    """The loss of each step of this rank."""
    losses: dict[int, float] = {}

    def step(*, loss: float, step: int = 0, **_: Any) -> None:
        losses[step] = float(loss)

    with (
        pytest.MonkeyPatch.context() as patch,
        FolderCheckpoints(folder, world.rank, world.size) as checkpoints,
    ):
        patch.setattr(telemetry, "step", step)
        train(settings, world, checkpoints, replicated)
    world.wait()  # until all have written their parts
    return losses


def saved(folder: Path, file: str) -> Any:
    return torch.load(max(folder.glob("checkpoint_*")) / file, weights_only=True)


def smooth_and_broken(
    world: World, folder: Path, settings: TrainSettings
) -> tuple[dict[int, float], dict[int, float]]:
    smooth = learn(world, folder / "smooth", settings)
    learn(world, folder / "broken", replace(settings, max_steps=settings.max_steps // 2))
    torch.manual_seed(123)  # a new process begins with other generators
    return smooth, learn(world, folder / "broken", settings)


def same(smooth: dict[int, float], resumed: dict[int, float], steps: range) -> None:
    assert sorted(resumed) == list(steps)
    assert resumed == {step: smooth[step] for step in steps}


@pytest.mark.parametrize("switched", SWITCHED)
def test_every_switch_continues_with_the_very_same_losses(switched: str, tmp_path: Path) -> None:
    smooth, resumed = smooth_and_broken(alone("false"), tmp_path, SWITCHED[switched])
    same(smooth, resumed, range(8, 15))
    one, other = (saved(tmp_path / way, "average.pt") for way in ("smooth", "broken"))
    assert one.get("steps") == other.get("steps")
    for average, resumed_average in zip(
        one.get("average", []), other.get("average", []), strict=True
    ):
        assert torch.equal(average, resumed_average)
    weights = saved(tmp_path / "broken", "model.pt")
    for name, weight in saved(tmp_path / "smooth", "model.pt").items():
        assert torch.equal(weights[name], weight), name


def two_ranks(world: World, folder: Path) -> tuple[dict[int, float], dict[int, float], str]:
    """The losses of an exact run and of its resumed one, and what PowerSGD's resume reports."""
    sent = replace(SMALL, workers=2, accumulate=2, comm_hook="bf16")
    losses = smooth_and_broken(world, folder / "exact", sent)
    text = io.StringIO()
    with redirect_stdout(text):
        powersgd = replace(SMALL, workers=2, comm_hook="powersgd", powersgd_after=4)
        smooth_and_broken(world, folder / "powersgd", powersgd)
    return *losses, text.getvalue()


def test_two_ranks_continue_with_the_same_losses_or_report_why_not(tmp_path: Path) -> None:
    ranks = on_ranks(2, two_ranks, tmp_path)
    for smooth, resumed, _ in ranks:
        same(smooth, resumed, range(8, 15))
    text = "resumed at step 7, powersgd starts again after 4 steps with whole gradients"
    assert text in ranks[0][2]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    learn(alone("false"), folder, replace(SMALL, max_steps=1))
    return folder


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"model": "mlp"}, "it is of the model convnet, not mlp"),
        ({"optimizer": "sgd"}, "it is of the optimizer AdamW, not SGD"),
        (
            {"width": 8},
            r"features\.0\.0\.weight is \(4, 1, 3, 3\) in the checkpoint "
            r"and \(8, 1, 3, 3\) in the model",
        ),
    ],
)
def test_the_checkpoint_of_another_model_is_refused_with_what_to_do(
    other: dict[str, Any], why: str, run: Path
) -> None:
    refused = rf"checkpoint_0+1 is of another run: {why}; resume with .*, or give another run_name"
    with pytest.raises(Stop, match=refused):
        learn(alone("false"), run, replace(SMALL, **other))


@pytest.mark.parametrize(
    ("version", "why"),
    [(0, "it is of version 0, and this code writes 1"), (None, f"it has no {COUNTS}")],
)
def test_the_checkpoint_of_another_version_is_refused(
    version: int | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        if version is None:
            patch.setattr("training.loop.progress.COUNTS", "counts.pt")
        else:
            patch.setattr("training.loop.progress.VERSION", version)
        learn(alone("false"), tmp_path, replace(SMALL, max_steps=1))
    with pytest.raises(Stop, match=why):
        learn(alone("false"), tmp_path, SMALL)


def test_a_resume_that_rounds_its_first_step_in_another_way_reports_it() -> None:
    two = World(0, 2, 0, torch.device("cpu"))
    recorded = replace(SMALL, accumulate=2, static_graph=True)
    assert "rounds the first step" in not_exact(recorded, two)
    assert not_exact(recorded, alone("false")) == ""
    assert not_exact(replace(recorded, accumulate=1), two) == ""


def test_an_average_that_was_saved_is_left_out_when_none_is_wanted_any_more(tmp_path: Path) -> None:
    learn(alone("false"), tmp_path, replace(SMALL, ema_decay=0.9, max_steps=1))
    assert sorted(learn(alone("false"), tmp_path, replace(SMALL, max_steps=2))) == [2]
    assert saved(tmp_path, "average.pt") == {}


def test_a_resume_of_more_than_two_ranks_does_not_claim_to_be_exact() -> None:
    two, three = (World(0, size, 0, torch.device("cpu")) for size in (2, 3))
    assert not_exact(SMALL, two) == ""
    assert "round the sums of the first step in another order" in not_exact(SMALL, three)
