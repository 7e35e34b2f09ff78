"""The states of the random generators, which a checkpoint contains."""

from __future__ import annotations

import random
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pytest
import torch

from training.loop import generators
from training.loop.generators import restore, seed_all, states


def drawn() -> list[float]:
    return [
        random.random(),
        random.gauss(0.0, 1.0),
        np.random.rand(),
        np.random.randn(),
        float(torch.rand(())),
    ]


@pytest.mark.parametrize(
    "use",
    [
        lambda: None,
        lambda: np.random.rand(),
        lambda: np.random.randn(),
        lambda: np.random.randn(2),
        lambda: np.random.seed(5),
        lambda: np.random.randn(400),
        lambda: np.random.rand(624),
        lambda: random.random(),
        lambda: random.gauss(0.0, 1.0),
        lambda: random.seed(5),
        lambda: [random.random() for _ in range(312)],
    ],
)
def test_restored_generators_continue_as_after_the_capture(use: Callable[[], object]) -> None:
    seed_all(3, 1)
    states()
    for _ in range(2):  # the second draw of a normal variate is left over from the first
        use()
        state = states()
        expected = drawn()
        restore(state)
        assert drawn() == expected
        restore(state)


def test_state_of_a_generator_that_was_not_used_is_not_read_again() -> None:
    seed_all(3, 1)
    first = states()
    assert states()["numpy"] is first["numpy"]
    assert states()["python"] is first["python"]
    np.random.rand()
    random.random()
    assert states()["numpy"] is not first["numpy"]
    assert states()["python"] is not first["python"]


def test_states_are_read_each_time_if_the_memory_of_the_generator_is_of_another_form() -> None:
    with patch.object(generators._python, "_is_known", False):
        assert states()["python"] is not states()["python"]
        assert states()["python"] == random.getstate()
