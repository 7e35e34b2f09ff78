"""The states of the random generators, which a checkpoint contains."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from training.loop.progress import captured, generators, restore, seed_all


def drawn() -> list[float]:
    return [random.random(), np.random.rand(), np.random.randn(), float(torch.rand(()))]


@pytest.mark.parametrize(
    "use",
    [
        lambda: None,
        lambda: np.random.rand(),
        lambda: np.random.randn(),
        lambda: np.random.randn(2),
        lambda: np.random.seed(5),
        lambda: np.random.randn(400),
    ],
)
def test_restored_generators_continue_as_after_the_capture(use: Callable[[], object]) -> None:
    seed_all(3, 1)
    captured()
    for _ in range(2):  # the second draw of a normal variate is left over from the first
        use()
        state = generators(captured())
        expected = drawn()
        restore(state)
        assert drawn() == expected
        restore(state)


def test_state_of_a_generator_that_was_not_used_is_not_read_again() -> None:
    seed_all(3, 1)
    first = captured()
    assert captured()["numpy"] is first["numpy"]
    np.random.rand()
    assert captured()["numpy"] is not first["numpy"]
