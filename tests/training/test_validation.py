"""A validation set from the training examples, the test set, and checkpoints every few epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.test_checkpointed import ALONE, SMALL
from training.checkpoint.in_folder import FolderCheckpoints
from training.data import load
from training.data.example_random import Draws
from training.data.examples import NoData
from training.data.settings import DataSettings
from training.loop import train as loop
from training.loop.evaluate import summary
from training.parallel.replicated import replicated
from training.techniques.schedule import schedule
from training.techniques.settings import OptimizerSettings

pytestmark = pytest.mark.usefixtures("one_thread")


class Recorded(FolderCheckpoints):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 0, 1, in_background=False, keep=99)
        self.metrics: list[dict[str, float]] = []
        self.saved: list[int] = []

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        self.metrics.append(dict(metrics))

    def report(self, metrics: Mapping[str, float], step: int, states: Mapping[str, Any]) -> None:
        self.metrics.append(dict(metrics))
        self.saved.append(step)
        super().report(metrics, step, states)


def test_every_epoch_is_evaluated_and_the_test_set_once_at_the_end(tmp_path: Path) -> None:
    """5 epochs, saved after the second, the fourth and the last."""
    settings = replace(
        SMALL, checkpoint_every_steps=0, save_every_epochs=2, validation_share=0.2, max_steps=0
    )
    checkpoints = Recorded(tmp_path)
    with checkpoints:
        result = loop.train(settings, ALONE, checkpoints, replicated)
    steps = [int(item["step"]) for item in checkpoints.metrics]
    epoch = steps[0]
    assert epoch == 18, "1,150 of 1,437 examples, 64 in a step"
    assert steps == [epoch * n for n in range(1, 6)]
    assert checkpoints.saved == [epoch * 2, epoch * 4, epoch * 5]
    assert ["test_accuracy" in item for item in checkpoints.metrics] == [False] * 4 + [True]
    assert result["test_accuracy"] > 0.2
    assert result["test_loss"] != result["held_out_loss"], "of other examples"
    assert summary(result).startswith(f"test accuracy {result['test_accuracy']:.4f}, accuracy ")


def test_a_run_that_is_killed_between_saved_epochs_repeats_the_epochs_exactly(
    tmp_path: Path,
) -> None:
    settings = replace(SMALL, checkpoint_every_steps=0, save_every_epochs=2, epochs=3)
    smooth = Recorded(tmp_path / "smooth")
    with smooth:
        expected = loop.train(settings, ALONE, smooth, replicated)
    broken = Recorded(tmp_path / "broken")
    with broken:
        loop.train(replace(settings, max_steps=46), ALONE, broken, replicated)
    assert broken.saved == [46]
    resumed = Recorded(tmp_path / "broken")
    with resumed:
        assert loop.train(settings, ALONE, resumed, replicated) == expected


def test_the_split_depends_on_its_seed_and_covers_each_example_once() -> None:
    whole, split = load(DataSettings()), load(DataSettings(validation_share=0.25))
    assert (len(split.train), len(split.held_out)) == (1078, 359)
    assert split.test is not None
    assert len(split.test) == len(whole.held_out)

    def images(settings: DataSettings) -> set[bytes]:
        held_out = load(settings).held_out
        inputs, _ = held_out.batch(np.arange(len(held_out)), None)
        return {image.numpy().tobytes() for image in inputs}

    train, _ = split.train.batch(np.arange(len(split.train)), None)
    every, _ = whole.train.batch(np.arange(len(whole.train)), None)
    validation = images(DataSettings(validation_share=0.25))
    parts = sorted([*(image.numpy().tobytes() for image in train), *validation])
    assert parts == sorted(image.numpy().tobytes() for image in every)
    assert images(DataSettings(validation_share=0.25)) == validation
    assert images(DataSettings(validation_share=0.25, split_seed=1)) != validation


def test_examples_of_a_split_are_augmented_by_their_original_numbers() -> None:
    whole, split = load(DataSettings()), load(DataSettings(validation_share=0.25))
    first, _ = split.train.batch(np.array([7]), Draws(0, 3))
    numbers = range(len(whole.train))
    augmented, _ = whole.train.batch(np.array(numbers), Draws(0, 3))
    assert any(torch.equal(first[0], image) for image in augmented)


@pytest.mark.parametrize("share", [0.0001, 0.9])
def test_a_split_without_examples_is_reported(share: float) -> None:
    settings = DataSettings(data="synthetic", examples=1, shape="1x8x8", validation_share=share)
    with pytest.raises(NoData, match=f"validation_share {share:g} of 1 examples is"):
        load(settings)


def test_the_step_schedule_multiplies_the_rate_by_gamma() -> None:
    settings = OptimizerSettings(
        learning_rate=1.0, schedule="step", warmup_steps=0, decay_every_epochs=2, lr_gamma=0.5
    )
    rates = schedule(settings, steps_of_epoch=10, epochs=6, step_examples=16)
    assert [rates.rate(step) for step in (0, 19, 20, 40)] == [1.0, 1.0, 0.5, 0.25]
