"""The newest model of a run, from its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException

from training.checkpoint import sharded
from training.checkpoint.filesystem import located
from training.checkpoint.manifest import Damaged
from training.checkpoint.restore import newest_whole
from training.checkpoint.storage import RunDirectory
from training.loop.recipe import Made, read
from training.parallel import IncompatibleCheckpoint
from training.parallel.named_state import STEPS, named
from training.parallel.single_device import AVERAGE, MODEL, compare, fit, shapes


@dataclass(frozen=True)
class Weights:
    checkpoint: str
    """Its path on the run's storage."""
    made: Made
    model: nn.Module
    """On its device, for evaluation; with the moving average of its weights, if there is one."""

    @property
    def name(self) -> str:
        return self.checkpoint.rpartition("/")[2]


class Run:
    """A run's directory: Ray Train's, or a folder that ranks without Ray Train wrote."""

    def __init__(self, path: str) -> None:
        """`path` is a directory, or an object store's address."""
        self._run = RunDirectory(*located(path))
        self._reported: set[str] = set()

    @property
    def path(self) -> str:
        return self._run.path

    def newest(self, device: torch.device, known: str = "") -> Weights | None:
        """From the newest complete checkpoint; None if there is none newer than `known`.

        Raises Stop if it contains no usable model, OSError if it cannot be read at the moment.
        """
        newer = takewhile(lambda path: path != known, self._run.checkpoints())
        with newest_whole(newer, self._run.opened, self._unused) as found:
            if found is None:
                return None
            return loaded(found.path, Path(found.directory), device)

    def _unused(self, path: str, why: str) -> None:
        """It is checked each time, and reported once: it may still be being written."""
        if path not in self._reported:
            print(f"{path.rpartition('/')[2]} is not used: {why}", flush=True)
        self._reported.add(path)


def loaded(path: str, directory: Path, device: torch.device) -> Weights:
    """Load either form, whole or in parts.

    Raises IncompatibleCheckpoint if it is neither or does not describe its model, and DoesNotFit if
    there can be no such model.
    """
    made = read(directory)
    model = made.build()
    if _is_in_parts(directory):
        try:
            fill_from_parts(model, directory)
        except Damaged as why:
            raise IncompatibleCheckpoint(f"its parts cannot be read: {why}") from why
        except CheckpointException as why:  # a BaseException, with a traceback of many lines
            last = str(why).strip().splitlines()[-1]
            raise IncompatibleCheckpoint(f"its parts cannot be read: {last}") from why
    elif (directory / MODEL).exists():
        fill_from_whole(model, directory)
    else:
        raise IncompatibleCheckpoint(
            f"its model is neither in {MODEL} nor in torch's parts ({sharded.METADATA})"
        )
    return Weights(path, made, model.to(device).eval())


def _is_in_parts(directory: Path) -> bool:
    try:
        return sharded.is_in_parts(directory)
    except Damaged as why:
        raise IncompatibleCheckpoint(str(why)) from why


def fill_from_whole(model: nn.Module, directory: Path) -> None:
    saved, average = (
        torch.load(directory / name, map_location="cpu", weights_only=True)
        for name in (MODEL, AVERAGE)
    )
    fit(saved, model)
    model.load_state_dict(saved)
    if average:
        fill(model, average["average"])


def fill_from_parts(model: nn.Module, directory: Path) -> None:
    """Named as by `training.parallel.named_state`."""
    saved = sharded.saved(directory)
    parts = {name: found.size for name, found in saved.items()}
    of_model = {name: size for name, size in parts.items() if name.startswith("model/")}
    wanted = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    compare(of_model, shapes(wanted))
    sharded.load(directory, wanted)
    if STEPS in saved:
        names = named(model).names
        averages = [(f"average/{names[id(item)]}", item) for item in learnt(model)]
        sharded.load(directory, {name: item.detach() for name, item in averages})


@torch.no_grad()
def fill(model: nn.Module, average: list[Tensor]) -> None:
    """As saved by `training.techniques.average`: the evaluated weights are the served ones."""
    for own, value in zip(learnt(model), average, strict=True):
        own.copy_(value)


def learnt(model: nn.Module) -> list[nn.Parameter]:
    return [item for item in model.parameters() if item.requires_grad]
