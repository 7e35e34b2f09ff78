"""The learning rate of every step, to the digit."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from training.loop.settings import TrainSettings
from training.techniques.schedule import schedule

SETTINGS = TrainSettings(learning_rate=0.1, warmup_steps=4)


def rates(settings: TrainSettings, examples: int = 256) -> list[float]:
    """Of an epoch of 10 steps and another one."""
    found = schedule(settings, 10, 2, examples)
    return [found.rate(step) for step in range(20)]


def test_warmup_is_linear_to_the_peak() -> None:
    assert rates(SETTINGS)[:5] == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1])


def test_a_warm_up_of_minus_one_is_an_epoch_and_of_none_begins_at_the_peak() -> None:
    assert rates(replace(SETTINGS, warmup_steps=-1))[:11] == pytest.approx(
        [0.01 * step for step in range(1, 11)] + [0.1]
    )
    assert rates(replace(SETTINGS, warmup_steps=0))[0] == 0.1


def test_a_cosine_falls_from_the_peak_to_nothing() -> None:
    found = rates(SETTINGS)
    assert found[4:] == pytest.approx(
        [0.05 * (1 + math.cos(math.pi * step / 16)) for step in range(16)]
    )
    assert found[12] == pytest.approx(0.05)
    assert schedule(SETTINGS, 10, 2, 256).rate(20) == 0.0
    assert schedule(SETTINGS, 10, 2, 256).rate(99) == 0.0, "it does not rise again"


def test_steps_reduce_the_rate_to_a_tenth_at_the_milestones() -> None:
    found = rates(replace(SETTINGS, schedule="step", decay_every_epochs=1))
    assert found[4:10] == pytest.approx([0.1] * 6)
    assert found[10:] == pytest.approx([0.01] * 10)


def test_a_constant_stays() -> None:
    assert rates(replace(SETTINGS, schedule="constant"))[3:] == [0.1] * 17


@pytest.mark.parametrize(("scaled", "peak"), [("none", 0.1), ("linear", 0.4), ("sqrt", 0.2)])
def test_four_times_the_batch_scales_the_peak(scaled: str, peak: float) -> None:
    settings = replace(SETTINGS, scale_learning_rate=scaled, base_batch=64)
    assert max(rates(settings, examples=256)) == pytest.approx(peak)
    assert max(rates(settings, examples=64)) == pytest.approx(0.1)
