"""The data set and the order in which it is dealt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from training.data import digits
from training.data.digits import Digits
from training.data.example_random import Draws
from training.data.examples import NoData
from training.data.sampler import Sampler
from training.stop import Stop


def test_the_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    images, labels = digits.read(digits.FILE)
    original = load_digits()
    assert (images == original.images).all()
    assert (labels == original.target).all()


def test_the_split_is_fixed_and_disjoint_and_holds_every_digit() -> None:
    data, again = digits.load(), digits.load()
    train, held_out, held_out_again = data.train, data.held_out, again.held_out
    assert isinstance(train, Digits)
    assert isinstance(held_out, Digits)
    assert isinstance(held_out_again, Digits)
    assert (len(train), len(held_out)) == (1437, 360)
    assert (held_out.images == held_out_again.images).all()
    assert set(held_out.labels) == set(range(10))
    assert train.images.shape[1:] == data.shape == (1, 8, 8)
    assert (train.images.min(), train.images.max()) == (0, 1)


def test_a_digit_is_shifted_by_seed_epoch_and_number_and_by_nothing_else() -> None:
    data = digits.load().train
    some = np.arange(100)
    whole, _ = data.batch(some, Draws(seed=1, epoch=2))
    parts = [data.batch(part, Draws(seed=1, epoch=2))[0] for part in np.array_split(some[::-1], 7)]
    assert torch.equal(whole, torch.cat(parts).flip(0))
    assert not torch.equal(whole, data.batch(some, Draws(seed=1, epoch=3))[0])
    assert not torch.equal(whole, data.batch(some, Draws(seed=2, epoch=2))[0])
    plain, _ = data.batch(some, None)
    assert not torch.equal(whole, plain)
    moved = {
        (down, right)
        for digit, still in zip(whole, plain, strict=True)
        for down in (-1, 0, 1)
        for right in (-1, 0, 1)
        if torch.equal(digit[0, 1:-1, 1:-1], still[0].roll((-down, -right), (0, 1))[1:-1, 1:-1])
    }
    assert len(moved) == 9


def test_draws_are_even_and_not_alike_from_place_to_place() -> None:
    examples = np.arange(100_000)
    draws = Draws(seed=0, epoch=0)
    counts = np.bincount(draws.integers(examples, 5, place=0), minlength=5)
    assert abs(counts / len(examples) - 0.2).max() < 0.01
    first, second = draws.uniform(examples, 0), draws.uniform(examples, 1)
    assert 0 <= first.min() <= first.max() < 1
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < 0.02


def test_many_draws_of_an_example_are_its_own_and_not_alike() -> None:
    draws = Draws(seed=0, epoch=0)
    many = draws.many(np.arange(2000), 20, place=0)
    assert many.shape == (2000, 20)
    assert (draws.many(np.array([7, 5]), 20, place=0) == many[[7, 5]]).all()
    assert abs(many.mean() - 0.5) < 0.01
    assert len(np.unique(many)) == many.size
    for first, second in ((many[:, 0], many[:, 1]), (many[0], many[1]), (many[:-1], many[1:])):
        assert abs(np.corrcoef(first.flat, second.flat)[0, 1]) < 3 / np.sqrt(first.size)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "digits.npz"
    file.write_bytes(digits.FILE.read_bytes()[:-1] + b"x")
    with pytest.raises(NoData, match="is damaged"):
        digits.read(file)


@pytest.mark.parametrize("examples", [8, 33, 100, 1437])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize("batch_size", [1, 7, 16, 64])
def test_an_epoch_covers_each_example_once(examples: int, world_size: int, batch_size: int) -> None:
    ranks = [Sampler(examples, batch_size, rank, world_size, 0) for rank in range(world_size)]
    batches = [dealt(rank, 3) for rank in ranks]
    seen = np.concatenate([batch for of_rank in batches for batch in of_rank])
    assert sorted(seen) == list(range(examples))
    assert {len(of_rank) for of_rank in batches} == {ranks[0].steps}, "or a rank waits for ever"
    for step in zip(*batches, strict=True):
        assert max(map(len, step)) - min(map(len, step)) <= 1
        assert min(map(len, step)) >= 1


@pytest.mark.parametrize("examples", [24, 100, 1437])
@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize(("batch_size", "accumulate"), [(1, 2), (7, 3), (16, 6)])
def test_an_epoch_of_several_micro_batches_a_step_covers_each_example_once(
    examples: int, world_size: int, workers: int, batch_size: int, accumulate: int
) -> None:
    ranks = [
        Sampler(examples, batch_size, rank, world_size, 0, workers, accumulate)
        for rank in range(world_size)
    ]
    shares = [list(rank.epoch(3)) for rank in ranks]
    seen = [batch for of_rank in shares for share in of_rank for batch in share.micro_batches]
    assert sorted(np.concatenate(seen)) == list(range(examples))
    assert {len(of_rank) for of_rank in shares} == {ranks[0].steps}, "or a rank waits for ever"
    for step in zip(*shares, strict=True):
        sizes = [len(batch) for share in step for batch in share.micro_batches]
        assert len(sizes) == world_size * accumulate, "or a rank leaves out a backward pass"
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 2
        assert sum(sizes) == step[0].examples
        if world_size >= workers:
            assert max(sizes) <= max(batch_size, 2)


@pytest.mark.parametrize("accumulate", [2, 3])
def test_a_step_has_the_same_examples_in_however_many_micro_batches(accumulate: int) -> None:
    whole = [set(batch) for batch in dealt(Sampler(1000, 6 * accumulate, 0, 2, seed=0), 2)]
    parts = Sampler(1000, 6, 0, 2, seed=0, accumulate=accumulate).epoch(2)
    assert whole == [set(np.concatenate(share.micro_batches)) for share in parts]


def dealt(sampler: Sampler, epoch: int) -> list[NDArray[np.int64]]:
    """The one micro-batch of each step."""
    shares = list(sampler.epoch(epoch))
    assert all(len(share.micro_batches) == 1 for share in shares)
    return [share.micro_batches[0] for share in shares]


def test_each_epoch_has_an_order_of_its_own_that_repeats_by_seed() -> None:
    sampler = Sampler(100, 10, 0, 2, seed=5)
    first, second = np.concatenate(dealt(sampler, 0)), np.concatenate(dealt(sampler, 1))
    assert list(first) != list(second)
    assert list(first) == list(np.concatenate(dealt(Sampler(100, 10, 0, 2, seed=5), 0)))
    assert list(first) != list(np.concatenate(dealt(Sampler(100, 10, 0, 2, seed=6), 0)))


@pytest.mark.parametrize("examples", [33, 1437])
@pytest.mark.parametrize("batch_size", [1, 16])
def test_a_step_has_the_same_examples_however_many_ranks_share_it(
    examples: int, batch_size: int
) -> None:
    def steps(world_size: int) -> list[list[int]]:
        ranks = [
            Sampler(examples, batch_size, rank, world_size, seed=0, workers=4)
            for rank in range(world_size)
        ]
        epochs = [dealt(rank, 1) for rank in ranks]
        return [sorted(np.concatenate(parts)) for parts in zip(*epochs, strict=True)]

    assert steps(1) == steps(2) == steps(3) == steps(4)


def test_more_ranks_than_examples_are_refused() -> None:
    with pytest.raises(Stop, match="do not go round"):
        Sampler(3, 1, 0, 4, 0)
