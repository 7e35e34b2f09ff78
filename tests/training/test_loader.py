"""The loader: the same batches with and without processes to help, and nothing left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.checkpoint.in_folder import FolderCheckpoints
from training.data import digits
from training.data.example_random import Draws
from training.data.examples import Batch, NoData
from training.data.loader import Loader
from training.data.sampler import Sampler
from training.data.settings import DataSettings
from training.jobs import worker
from training.loop.settings import TrainSettings
from training.loop.world import alone
from training.parallel.single_device import whole

DIGITS = digits.load().train
ALONE = DataSettings(loader_workers=0)
HELPED = [
    DataSettings(loader_workers=1),
    DataSettings(loader_workers=2, prefetch=5),
    DataSettings(loader_workers=1, prefetch=0),  # as ray_data may have it, which evaluates so
    DataSettings(loader_workers=2, prefetch=1, persistent_workers=False),
]
Plain = list[tuple[int, list[tuple[Tensor, Tensor]]]]


@pytest.fixture(autouse=True)
def no_process_is_left_behind() -> Iterator[None]:
    before = set(multiprocessing.active_children())
    yield
    gc.collect()
    assert set(multiprocessing.active_children()) == before


def dealt(examples: int = 200, batch_size: int = 16, accumulate: int = 1) -> Sampler:
    return Sampler(examples, batch_size, 0, 2, seed=3, workers=2, accumulate=accumulate)


def steps_of(loader: Loader, epoch: int, after: int = 0, at_most: int | None = None) -> Plain:
    steps = islice(loader.epoch(epoch, after), at_most)
    return [(step.examples, list(step.micro_batches)) for step in steps]


def assert_same(some: Plain, others: Plain) -> None:
    assert [(examples, len(batches)) for examples, batches in some] == [
        (examples, len(batches)) for examples, batches in others
    ]
    for (_, own), (_, expected) in zip(some, others, strict=True):
        for batch, other in zip(own, expected, strict=True):
            assert all(torch.equal(*both) for both in zip(batch, other, strict=True))


@pytest.mark.parametrize("settings", HELPED)
def test_processes_give_the_very_batches_that_the_rank_itself_makes(
    settings: DataSettings,
) -> None:
    """In order, over epochs, from the middle of one, and with an epoch left in the middle."""
    alone, helped = (Loader(DIGITS, dealt(accumulate=2), item) for item in (ALONE, settings))
    assert helped.steps == alone.steps == 4
    assert_same(steps_of(helped, 0), steps_of(alone, 0))
    assert_same(steps_of(helped, 1, after=2), steps_of(alone, 1, after=2))
    assert_same(steps_of(helped, 2, at_most=1), steps_of(alone, 2, at_most=1))
    assert_same(steps_of(helped, 3), steps_of(alone, 3))
    assert_same(steps_of(helped, 3, after=4), [])
    assert_same(steps_of(helped, 4), steps_of(alone, 4))


def test_a_batch_is_what_indexing_gives() -> None:
    sampler = dealt()
    for (_, batches), share in zip(
        steps_of(Loader(DIGITS, sampler, ALONE), 5), sampler.epoch(5), strict=True
    ):
        expected = DIGITS.batch(share.micro_batches[0], Draws(3, 5))
        assert all(torch.equal(*both) for both in zip(batches[0], expected, strict=True))


def test_evaluation_examples_are_not_augmented() -> None:
    sampler = dealt()
    plain = steps_of(Loader(DIGITS, sampler, ALONE, augmented=False), 5)
    for (_, batches), share in zip(plain, sampler.epoch(5), strict=True):
        expected = DIGITS.batch(share.micro_batches[0], None)
        assert all(torch.equal(*both) for both in zip(batches[0], expected, strict=True))


@pytest.mark.parametrize("workers", [0, 2])
def test_unused_batch_is_not_passed_to_the_next_step(workers: int) -> None:
    settings = DataSettings(loader_workers=workers)
    whole = steps_of(Loader(DIGITS, dealt(accumulate=3), ALONE), 0)
    left = Loader(DIGITS, dealt(accumulate=3), settings).epoch(0)
    firsts = [(step.examples, [next(step.micro_batches)]) for step in left]
    assert_same(firsts, [(examples, batches[:1]) for examples, batches in whole])


def test_more_processes_than_batches_do_no_harm() -> None:
    few = Sampler(2, 16, 0, 2, seed=0)
    helped = Loader(DIGITS, few, DataSettings(loader_workers=2, prefetch=4))
    for epoch in range(2):
        assert_same(steps_of(helped, epoch), steps_of(Loader(DIGITS, few, ALONE), epoch))


@pytest.mark.parametrize("workers", [0, 1])
def test_the_generators_that_a_resume_restores_are_left_alone(workers: int) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    loader = Loader(DIGITS, dealt(), DataSettings(loader_workers=workers))
    steps_of(loader, 0, at_most=2)
    assert torch.equal(torch.rand(3), expected)


@dataclass
class Asked:
    """Notes the process that makes a batch."""

    wrong_from: int = 10**9

    def __len__(self) -> int:
        return 64

    def batch(self, examples: NDArray[np.int64], draws: Draws | None) -> Batch:
        if examples.max() >= self.wrong_from:
            raise NoData("file.png cannot be read")
        process = torch.full((len(examples),), os.getpid())
        return process, torch.from_numpy(examples)


@pytest.mark.parametrize("persistent", [True, False])
def test_persistent_processes_live_from_epoch_to_epoch(persistent: bool) -> None:
    settings = DataSettings(loader_workers=2, persistent_workers=persistent)
    loader = Loader(Asked(), Sampler(64, 8, 0, 1, seed=0), settings)
    first, second = (
        {int(batch[0][0]) for _, batches in steps_of(loader, epoch) for batch in batches}
        for epoch in range(2)
    )
    assert len(first) == len(second) == 2
    assert os.getpid() not in first | second
    assert (first == second) is persistent


def test_batches_that_wait_hold_no_more_files_than_they_did_an_epoch_before() -> None:
    """Each batch that a process passes on is one or two file descriptors of shared memory."""
    settings = DataSettings(loader_workers=2, prefetch=4)
    loader = Loader(Asked(), Sampler(64, 2, 0, 1, seed=0), settings)
    opened = []
    for epoch in range(3):
        for step in loader.epoch(epoch):
            next(step.micro_batches)
        opened.append(len(list(Path("/proc/self/fd").iterdir())))
    assert opened[2] <= opened[0] + 2


@pytest.mark.parametrize("workers", [0, 1])
def test_error_in_the_data_is_reported_with_its_own_message(workers: int) -> None:
    settings = DataSettings(loader_workers=workers)
    loader = Loader(Asked(wrong_from=0), Sampler(64, 8, 0, 1, seed=0), settings)
    with pytest.raises(NoData, match=r"^file\.png cannot be read$"):
        steps_of(loader, 0)


def test_a_rank_that_alone_cannot_read_fails_and_does_not_leave_the_others_waiting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A rank of a Ray Train run that returns is done, and its process lives on."""
    data = replace(digits.load(), train=Asked(wrong_from=0))
    monkeypatch.setattr(worker, "on_ray", lambda: alone("false"))
    monkeypatch.setattr(worker, "RunCheckpoints", lambda **_: FolderCheckpoints(tmp_path, 0, 1))
    with pytest.raises(NoData, match=r"^file\.png cannot be read$"):
        worker.work(TrainSettings(workers=1, width=4), whole, data)
