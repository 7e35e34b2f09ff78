"""Batches that Ray Data loads in separate tasks, and streams to their rank.

Each rank has a Dataset of the numbers of its examples, in the sampler's order: as with `Loader`,
the sampler determines what an epoch covers, and which rank sees what. Ray Data's `streaming_split`
would send a block to the rank that has the fewest, and with `equal=True` omit examples that cannot
be divided into equal shares: neither covers each example once, and neither can be resumed by number
(Ray 2.60, OutputSplitter).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data import load
from training.data.example_random import Draws
from training.data.examples import Batch, Examples, NoData
from training.data.loader import Step
from training.data.sampler import Sampler
from training.data.settings import DataSettings
from training.settings import setting

Numbers = NDArray[np.int64]
Block = dict[str, NDArray[Any]]
"""The columns of a task's examples: "number", "inputs" and "targets"; or "wrong", a sentence."""

LARGEST_BLOCK = 1024
"""The maximum number of examples of a task, unless a batch has more: the first batch waits for a
whole block."""

TASKS_OF_A_DATASET = 256
"""A Dataset takes a moment to start, and contains the numbers of all of its tasks: short epochs
share one, and a long one has several.
"""

READ_AHEAD_BYTES = 256 << 20
"""The maximum part of the object store that a rank's stream fills, if there is as much."""


@dataclass(frozen=True)
class StreamSettings(DataSettings):
    """Ray Data"""

    loader_workers: int = setting(1, "simultaneous loading tasks for each rank", at_least=1)
    prefetch: int = setting(2, "blocks that a rank fetches ahead from the object store", at_least=0)
    loader_cpus: float = setting(
        0.0,
        "CPUs of each loading task, on any node; 0: on the rank's node, none reserved",
        at_least=0,
    )
    block_mb: float = setting(16.0, "MB of examples that one task loads", at_least=0)


@dataclass(frozen=True, slots=True)
class Task:
    """The input of one Ray Data task: micro-batches of one epoch, in order."""

    epoch: int
    micro_batches: tuple[Numbers, ...]


class Streamed:
    """The sampler's examples, loaded by Ray Data up to the end of the last epoch."""

    def __init__(
        self,
        examples: Callable[[], Examples],
        sampler: Sampler,
        settings: StreamSettings,
        epochs: int,
    ) -> None:
        """`examples` is called in each task of Ray Data, so it should cache its result."""
        self._examples, self._sampler, self._epochs = examples, sampler, epochs
        self._settings = settings
        self._pinned = settings.pin_memory and torch.cuda.is_available()
        inputs, targets = examples().batch(np.arange(1), None)
        fits = int(settings.block_mb * (1 << 20) / (inputs.nbytes + targets.nbytes))
        self._block = max(1, min(fits, LARGEST_BLOCK) // sampler.batch_size)
        self._batches: Iterator[Batch] = iter(())
        self._position = (-1, 0)
        """The epoch and the step with which `_batches` continues."""

    @property
    def steps(self) -> int:
        return self._sampler.steps

    def epoch(self, epoch: int, after: int = 0) -> Iterator[Step]:
        """Continue the current stream, or start a new one at this step."""
        if self._position != (epoch, after):
            self._batches = self._stream(epoch, after)
        for number, share in enumerate(self._sampler.epoch(epoch, after), after + 1):
            micro_batches = islice(self._batches, len(share.micro_batches))
            yield Step(share.examples, micro_batches)
            deque(micro_batches, maxlen=0)  # from a step that was aborted
            self._position = (epoch + 1, 0) if number == self.steps else (epoch, number)

    def _stream(self, epoch: int, after: int) -> Iterator[Batch]:
        tasks = self._tasks(epoch, after)
        while window := list(islice(tasks, TASKS_OF_A_DATASET)):
            wanted = [examples for task in window for examples in task.micro_batches]
            yield from cut(self._loaded(window), wanted, pinned=self._pinned)

    def _tasks(self, epoch: int, after: int) -> Iterator[Task]:
        for each in range(epoch, self._epochs):
            shares = self._sampler.epoch(each, after if each == epoch else 0)
            batches = chain.from_iterable(share.micro_batches for share in shares)
            while block := tuple(islice(batches, self._block)):
                yield Task(each, block)

    def _loaded(self, tasks: list[Task]) -> Iterable[Block]:
        """A block for each task, in order."""
        import pyarrow as pa  # type: ignore[import-untyped]
        import ray
        from ray.data import DataContext, ExecutionResources, TaskPoolStrategy

        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        context.execution_options.preserve_order = True
        store_bytes = ray.cluster_resources().get("object_store_memory", 0.0)
        context.execution_options.resource_limits = ExecutionResources.for_limits(
            object_store_memory=min(
                READ_AHEAD_BYTES, store_bytes / 2 / max(1, self._sampler.world_size)
            )
        )
        beside = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
        numbers = [np.concatenate(task.micro_batches) for task in tasks]
        tables = [
            pa.table({"number": of_task, "epoch": np.full_like(of_task, task.epoch)})
            for task, of_task in zip(tasks, numbers, strict=True)
        ]
        # Not from_arrow: its first task waits for a CPU that no rank reserves.
        dataset = ray.data.from_blocks(tables).map_batches(
            partial(loaded, examples=self._examples, seed=self._sampler.seed),
            batch_size=None,
            batch_format="numpy",
            num_cpus=self._settings.loader_cpus,
            compute=TaskPoolStrategy(self._settings.loader_workers),
            label_selector=None if self._settings.loader_cpus else beside,
        )
        blocks: Iterable[Block] = dataset.iter_batches(
            batch_size=None, batch_format="numpy", prefetch_batches=self._settings.prefetch
        )
        return blocks


def loaded(block: Block, examples: Callable[[], Examples], seed: int) -> Block:
    """Runs in a task of Ray Data: load the numbered examples, augmented for their epoch.

    Errors in the data are returned: Ray Data would raise them with its own traceback.
    """
    try:
        inputs, targets = examples().batch(block["number"], Draws(seed, int(block["epoch"][0])))
    except NoData as why:
        return {"wrong": np.array([str(why)])}
    return {"number": block["number"], "inputs": inputs.numpy(), "targets": targets.numpy()}


def cut(
    blocks: Iterable[Block], micro_batches: Iterable[Numbers], *, pinned: bool = False
) -> Iterator[Batch]:
    """Split the blocks' examples into these micro-batches, across the borders of blocks.

    Raises NoData if a task did not find or could not read the data, and UnexpectedStreamError if
    the blocks contain other examples, or too few.
    """
    following = iter(blocks)
    rest: Block = {"number": np.empty(0, np.int64)}
    for wanted in micro_batches:
        pieces: list[Block] = []
        lacking = len(wanted)
        while lacking:
            if not len(rest["number"]):
                rest = next(following, {})
                if not rest:
                    raise UnexpectedStreamError(
                        f"Ray Data's stream ended {lacking} examples too early"
                    )
                if "wrong" in rest:
                    raise NoData(str(rest["wrong"][0]))
            pieces.append({name: column[:lacking] for name, column in rest.items()})
            rest = {name: column[lacking:] for name, column in rest.items()}
            lacking -= len(pieces[-1]["number"])
        if not np.array_equal(np.concatenate([piece["number"] for piece in pieces]), wanted):
            raise UnexpectedStreamError(
                "Ray Data's stream has other examples than the sampler dealt"
            )
        yield whole(pieces, "inputs", pinned), whole(pieces, "targets", pinned)


def whole(pieces: list[Block], name: str, pinned: bool) -> Tensor:
    """Copy a column into a tensor: Ray Data's is in the object store, and read-only."""
    columns = [piece[name] for piece in pieces]
    shape = (sum(map(len, columns)), *columns[0].shape[1:])
    dtype = torch.from_numpy(np.empty(0, columns[0].dtype)).dtype
    tensor = torch.empty(shape, dtype=dtype, pin_memory=pinned)
    np.concatenate(columns, out=tensor.numpy())
    return tensor


class UnexpectedStreamError(RuntimeError):
    """A stream with the wrong examples; training must stop."""


@cache
def train_examples(settings: DataSettings) -> Examples:
    """The data set, opened once in each process."""
    return load(settings).train
