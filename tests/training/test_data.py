"""The data set and the order in which it is dealt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from training.data import digits
from training.data.sampler import Sampler


def test_the_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    images, labels = digits.read(digits.FILE)
    original = load_digits()
    assert (images == original.images).all()
    assert (labels == original.target).all()


def test_the_split_is_fixed_and_disjoint_and_holds_every_digit() -> None:
    data = digits.load()
    assert (len(data.train), len(data.held_out)) == (1437, 360)
    again = digits.load()
    assert (data.held_out.images == again.held_out.images).all()
    assert set(data.held_out.labels) == set(range(10))
    assert data.train.images.shape[1:] == (1, 8, 8)
    assert (data.train.images.min(), data.train.images.max()) == (0, 1)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "digits.npz"
    file.write_bytes(digits.FILE.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match="is damaged"):
        digits.read(file)


@pytest.mark.parametrize("examples", [8, 33, 100, 1437])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize("batch_size", [1, 7, 16, 64])
def test_an_epoch_covers_each_example_once(examples: int, world_size: int, batch_size: int) -> None:
    ranks = [Sampler(examples, batch_size, rank, world_size, 0) for rank in range(world_size)]
    batches = [rank.epoch(3) for rank in ranks]
    seen = np.concatenate([batch for of_rank in batches for batch in of_rank])
    assert sorted(seen) == list(range(examples))
    assert {len(of_rank) for of_rank in batches} == {ranks[0].steps}, "or a rank waits for ever"
    for step in zip(*batches, strict=True):
        assert max(map(len, step)) - min(map(len, step)) <= 1
        assert min(map(len, step)) >= 1


def test_each_epoch_has_an_order_of_its_own_that_repeats_by_seed() -> None:
    sampler = Sampler(100, 10, 0, 2, seed=5)
    first, second = np.concatenate(sampler.epoch(0)), np.concatenate(sampler.epoch(1))
    assert list(first) != list(second)
    assert list(first) == list(np.concatenate(Sampler(100, 10, 0, 2, seed=5).epoch(0)))
    assert list(first) != list(np.concatenate(Sampler(100, 10, 0, 2, seed=6).epoch(0)))


def test_more_ranks_than_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="do not go round"):
        Sampler(3, 1, 0, 4, 0)
