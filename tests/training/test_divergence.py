"""A step that is not finite is found, a step late where to look at once would wait."""

from __future__ import annotations

import math

import pytest
import torch

from training.loop.divergence import SKIPPED, Finite, why_not_finite

CPU, GPU = torch.device("cpu"), torch.device("cuda")
NAN, ONE = torch.tensor(math.nan), torch.tensor(1.0)


def test_on_a_cpu_it_is_found_in_its_step() -> None:
    finite = Finite(CPU, skips_steps=False)
    finite.step(1, ONE, ONE)
    assert finite.first_wrong() is None
    finite.step(2, torch.tensor(3.0), torch.tensor(math.inf))
    assert finite.first_wrong() == (2, 3.0), "the loss is this rank's, the length is all ranks'"


def test_on_a_gpu_it_is_found_when_the_next_step_is_under_way() -> None:
    finite = Finite(GPU, skips_steps=False)
    finite.step(1, ONE, NAN)
    assert finite.first_wrong() is None
    finite.step(2, ONE, ONE)
    assert finite.first_wrong() == (1, 1.0)


def test_on_a_gpu_the_newest_is_waited_for_before_something_is_made_of_it() -> None:
    finite = Finite(GPU, skips_steps=False)
    finite.step(1, ONE, NAN)
    assert finite.first_wrong(newest=True) == (1, 1.0)


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
def test_a_loss_scale_may_skip_steps_but_not_forever(device: torch.device) -> None:
    finite = Finite(device, skips_steps=True)
    for step in range(1, SKIPPED + 1):
        finite.step(step, ONE, NAN)
        assert finite.first_wrong(newest=True) is None
    finite.step(SKIPPED + 1, ONE, ONE)
    assert finite.first_wrong(newest=True) is None
    for step in range(SKIPPED + 1):
        finite.step(100 + step, NAN, NAN)
    wrong = finite.first_wrong(newest=True)
    assert wrong is not None
    assert wrong[0] == 100 + SKIPPED, "the count began anew with the step that was finite"


def test_at_most_one_unread_check_is_kept() -> None:
    finite = Finite(GPU, skips_steps=False)
    for step in range(50):
        finite.step(step, ONE, ONE)
        finite.first_wrong()
    assert len(finite._unread) == 1


@pytest.mark.parametrize(
    ("losses", "sentence"),
    [
        ([1.0, math.nan], "the loss became nan at step 7 on rank 1"),
        ([math.inf, 1.0, math.nan], "the loss became inf at step 7 on ranks 0, 2"),
        ([1.0, 1.0], "the gradients are not finite at step 7, though every rank's loss is"),
    ],
)
def test_divergence_error_names_the_ranks(losses: list[float], sentence: str) -> None:
    assert why_not_finite(7, losses) == sentence
