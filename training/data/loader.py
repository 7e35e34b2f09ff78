"""Batches of a data set, prepared while training continues."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from training.checkpoint.filesystem import is_address
from training.data.example_random import Draws
from training.data.examples import Batch, Examples, NoData
from training.data.sampler import Sampler
from training.data.settings import DataSettings


@dataclass(frozen=True)
class Step:
    """The micro-batches of one rank in one step."""

    examples: int
    """The examples of the whole step, over all ranks."""
    micro_batches: Iterator[Batch]


class Batches(Protocol):
    """The source of a training loop's steps."""

    @property
    def steps(self) -> int:
        """The steps of an epoch."""
        ...

    def epoch(self, epoch: int, after: int = 0) -> Iterator[Step]:
        """All steps of an epoch, without the first `after`."""
        ...


class Loader:
    """The sampler's examples, batch by batch, with or without loader processes."""

    def __init__(
        self,
        examples: Examples,
        sampler: Sampler,
        settings: DataSettings,
        *,
        augmented: bool = True,
    ) -> None:
        self._sampler = sampler
        self._wanted: list[_Wanted] = []
        # A forked process cannot use the threads of its parent's S3 client.
        workers = 0 if is_address(settings.data_path) else settings.loader_workers
        helped = workers > 0
        self._loader: DataLoader[Batch | NoData] = DataLoader(
            _Made(examples, sampler.seed if augmented else None),
            batch_size=None,  # the sampler has batched them
            sampler=_Listed(self._wanted),
            num_workers=workers,
            # 0 is for Ray Data's blocks: torch uses 1 or more.
            prefetch_factor=max(1, settings.prefetch) if helped else None,
            persistent_workers=settings.persistent_workers and helped,
            pin_memory=settings.pin_memory and torch.cuda.is_available(),
            generator=torch.Generator(),  # draws seeds, but not from the restored generator
        )

    @property
    def steps(self) -> int:
        return self._sampler.steps

    def epoch(self, epoch: int, after: int = 0) -> Iterator[Step]:
        shares = list(self._sampler.epoch(epoch, after))
        self._wanted[:] = [
            _Wanted(share.epoch, examples) for share in shares for examples in share.micro_batches
        ]
        made = map(_whole, iter(self._loader))
        for share in shares:
            micro_batches = islice(made, len(share.micro_batches))
            yield Step(share.examples, micro_batches)
            deque(micro_batches, maxlen=0)  # from a step that was aborted


@dataclass(frozen=True, slots=True)
class _Wanted:
    epoch: int
    examples: NDArray[np.int64]


@dataclass(frozen=True)
class _Listed:
    """The batches to load next, in order; persistent processes outlive an epoch's list."""

    wanted: list[_Wanted]

    def __iter__(self) -> Iterator[_Wanted]:
        return iter(list(self.wanted))

    def __len__(self) -> int:
        return len(self.wanted)


class _Made(Dataset[Batch | NoData]):
    def __init__(self, examples: Examples, seed: int | None) -> None:
        self._examples, self._seed = examples, seed

    def __getitem__(self, wanted: _Wanted) -> Batch | NoData:
        """Return errors instead of raising them: torch would add a traceback to the message."""
        draws = None if self._seed is None else Draws(self._seed, wanted.epoch)
        try:
            return self._examples.batch(wanted.examples, draws)
        except NoData as why:
            return why


def _whole(made: Batch | NoData) -> Batch:
    if isinstance(made, NoData):
        try:
            raise made
        finally:
            del made  # else a reference cycle keeps the loader processes alive
    # Pinned memory turns a tuple into a list.
    inputs, targets = made
    return inputs, targets
