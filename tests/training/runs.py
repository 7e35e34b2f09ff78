"""Short real runs of the training loop, recorded step by step, for comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from training import telemetry
from training.checkpoint import sharded as files
from training.checkpoint.in_folder import FolderCheckpoints
from training.data import digits
from training.data.example_random import Draws
from training.data.examples import Batch, Data, Examples
from training.loop import train as loop
from training.loop.settings import TrainSettings
from training.loop.train import Parallelizer
from training.loop.world import World
from training.parallel import Parallel
from training.parallel import single_device as place
from training.techniques import optimizer as techniques


class Killed(Exception):
    pass


@dataclass
class Did:
    losses: dict[int, float]
    """Of all ranks, by step."""
    samples: dict[int, float]
    own_bytes: int = 0
    """Of this rank's weights."""
    optimizer_bytes: int = 0
    whole_bytes: int = 0


def ran(
    world: World,
    folder: Path,
    settings: TrainSettings,
    how: Parallelizer,
    *,
    data: Data | None = None,
    die_at: int = 0,
) -> Did:
    """A run to its end, or up to a death between two checkpoints."""
    done = Did({}, {})
    made: list[Parallel] = []
    optimizers: list[Optimizer] = []

    def spread(model: nn.Module, world: World, given: TrainSettings) -> Parallel:
        made.append(how(model, world, given))
        return made[0]

    def step(*, loss: Tensor, step: int, samples: float, **_: Any) -> None:
        if step == die_at:
            raise Killed
        done.losses[step] = float(world.mean(loss))
        done.samples[step] = float(world.total(torch.tensor(samples)))

    def optimizer(parameters: Iterable[nn.Parameter], given: TrainSettings) -> Optimizer:
        optimizers.append(techniques.optimizer(parameters, given))
        return optimizers[0]

    with (
        suppress(Killed),
        patch.object(telemetry, "step", step),
        patch.object(place, "optimizer", optimizer),
        FolderCheckpoints(folder, world.rank, world.size) as checkpoints,
    ):
        loop.train(settings, world, checkpoints, spread, data or few())
    for item in made[0].model.parameters():
        done.own_bytes += own(item).nbytes
        done.whole_bytes += item.numel() * item.element_size()
    for state in [state for made_one in optimizers for state in made_one.state.values()]:
        done.optimizer_bytes += sum(own(value).nbytes for value in state.values())
    return done


@dataclass(frozen=True)
class Few:
    """The first of some examples."""

    count: int
    examples: Examples

    def __len__(self) -> int:
        return self.count

    def batch(self, examples: NDArray[np.int64], draws: Draws | None) -> Batch:
        return self.examples.batch(examples, draws)


def few() -> Data:
    """The digits, evaluated on few of them: the result is not checked."""
    data = digits.load()
    return replace(data, held_out=Few(12, data.held_out))


def own(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@contextmanager
def one() -> Iterator[World]:
    """A world of one rank with a process group, in this process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
    try:
        yield World(0, 1, 0, torch.device("cpu"))
    finally:
        dist.destroy_process_group()
        torch.set_num_threads(threads)


def weights(folder: Path) -> dict[str, Tensor]:
    """Of the newest checkpoint, of either form."""
    directory = max(folder.glob("checkpoint_*"))
    if (directory / "model.pt").exists():
        saved: dict[str, Tensor] = torch.load(directory / "model.pt", weights_only=True)
        return saved
    shapes = {
        name: found for name, found in files.saved(directory).items() if name.startswith("model/")
    }
    made = {
        name: torch.zeros(found.size, dtype=found.properties.dtype)
        for name, found in shapes.items()
    }
    files.load(directory, made)
    return {name.removeprefix("model/"): tensor for name, tensor in made.items()}


def close(ours: Any, theirs: Any) -> None:
    """float32 has a unit of 6e-8 at 1, and the steps of Adam stretch the sums' rounding."""
    assert ours
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def rest(run: Did, after: int = 4) -> dict[int, float]:
    return {step: loss for step, loss in run.losses.items() if step > after}
