"""The training loop of the jobs, which stops after each turn."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import count, islice, repeat
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import torch

from training.data.examples import Batch, Data, Examples
from training.data.loader import Loader, Step
from training.loop.settings import TrainSettings
from training.loop.train import Parallelizer, sampler, train
from training.loop.world import World

T = TypeVar("T")
ENDLESS = 1 << 40
"""Steps of the single epoch: no turn reaches its end, where a loop evaluates and saves."""


class NoCheckpoints:
    def newest(self) -> AbstractContextManager[Path | None]:
        return nullcontext()

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        raise RuntimeError("a loop that is measured came to the end of its epoch")

    def report(self, metrics: Mapping[str, float], step: int, states: Mapping[str, Any]) -> None:
        raise RuntimeError("a loop that is measured came to the end of its epoch")


class Loop:
    """Run `training.loop.train.train` on a separate thread, and only during a turn.

    Several of them alternate in one process. All ranks of its world call the same.
    """

    def __init__(
        self,
        settings: TrainSettings,
        world: World,
        spread: Parallelizer,
        data: Data,
        steps: Iterator[Step],
    ) -> None:
        """`steps` is endless. Returns when the model is built; raises what building raised."""
        self._settings, self._world, self._spread = settings, world, spread
        self._data, self._steps_given = data, steps
        self._orders: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[float | BaseException] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._train, name="loop", daemon=True)
        self._thread.start()
        self._answer()  # messages of the ranks while they build must not interleave

    def __enter__(self) -> Loop:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._orders.put(0)
        self._thread.join()

    def turn(self, steps: int) -> float:
        """Train this number of steps; returns the seconds. Raises what the loop raised."""
        # Per process, while each loop has its own.
        high = self._settings.precision == "tf32"
        torch.set_float32_matmul_precision("high" if high else "highest")
        torch.backends.cudnn.allow_tf32 = high
        self._orders.put(steps)
        return self._answer()

    @property
    def examples(self) -> int:
        """Examples of a step, over all ranks, with the batch size of the settings."""
        return self._settings.batch_size * self._settings.accumulate * self._world.size

    @property
    def steps(self) -> int:
        """As in `training.data.loader.Batches`."""
        return ENDLESS

    def epoch(self, epoch: int, after: int = 0) -> Iterator[Step]:
        """Called when the model is built, which is the first answer; then once for each turn."""
        self._answers.put(0.0)
        while ordered := self._orders.get():
            self._synchronize()
            began = time.perf_counter()
            yield from islice(self._steps_given, ordered)
            self._synchronize()
            self._answers.put(time.perf_counter() - began)
        raise _Over

    def _answer(self) -> float:
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _train(self) -> None:
        if self._world.device.type == "cuda":
            torch.cuda.set_device(self._world.device)  # each thread has its own
        try:
            ended = train(
                self._settings,
                self._world,
                NoCheckpoints(),
                self._spread,
                self._data,
                lambda examples, sampler, settings: self,
            )
            self._answers.put(RuntimeError(f"the loop stopped: {ended.get('stopped', ended)}"))
        except _Over:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by the caller of the turn
            self._answers.put(error)

    def _synchronize(self) -> None:
        if self._world.device.type == "cuda":
            torch.cuda.synchronize(self._world.device)


class _Over(Exception):
    """No more turns follow."""


def in_turn(items: Iterable[T], turn: int) -> list[T]:
    """Start each turn with another one, so that the order does not favor any."""
    every = list(items)
    first = turn % len(every)
    return every[first:] + every[:first]


def batch(examples: Examples, size: int, world: World) -> Batch:
    """The first `count` examples, repeated if there are fewer; on the device."""
    inputs, targets = examples.batch(np.arange(size) % len(examples), None)
    return inputs.to(world.device), targets.to(world.device)


def same_step(settings: TrainSettings, world: World, data: Data) -> Iterator[Step]:
    """Repeat the same batch, so that nothing is loaded."""
    one = batch(data.train, settings.batch_size, world)
    examples = settings.batch_size * settings.accumulate * world.size
    for _ in count():
        yield Step(examples, repeat(one, settings.accumulate))


def loaded_steps(settings: TrainSettings, world: World, data: Data) -> Iterator[Step]:
    """One epoch after the other, loaded as the job does."""
    dealt = replace(settings, workers=world.size)
    loader = Loader(data.train, sampler(dealt, world, len(data.train), chunks=data.chunks), dealt)
    for epoch in count():
        yield from loader.epoch(epoch)
