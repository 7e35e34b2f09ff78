"""The description of a model, kept with its weights, so that they can be used without the job."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from training.data.examples import Data
from training.data.settings import DataSettings
from training.loop.progress import COUNTS, MADE
from training.loop.settings import TrainSettings
from training.models import build
from training.models.settings import ModelSettings
from training.parallel import IncompatibleCheckpoint

T = TypeVar("T")


@dataclass(frozen=True)
class Made:
    data: DataSettings
    model: ModelSettings
    shape: tuple[int, ...]
    """The shape of an example: (channels, height, width), or (tokens,)."""
    classes: int
    """The number of labels, or the size of the vocabulary."""
    step: int
    """The step after which the weights were saved."""

    @property
    def takes_tokens(self) -> bool:
        return len(self.shape) == 1

    def build(self) -> nn.Module:
        """Build the model, with untrained weights."""
        return build(self.model, self.shape, self.classes)


def saved(settings: TrainSettings, data: Data) -> dict[str, Any]:
    """The state that `read` reads from a checkpoint; only settings of the model and its data."""
    return {
        "data": vars(part_of(DataSettings, vars(settings))),
        "model": vars(part_of(ModelSettings, vars(settings))),
        "shape": tuple(data.shape),
        "classes": data.classes,
    }


def read(checkpoint: Path) -> Made:
    """Raises IncompatibleCheckpoint if the checkpoint has no description."""
    if not (checkpoint / COUNTS).exists():
        raise IncompatibleCheckpoint(
            f"it has no {COUNTS}, so another version of this code wrote it"
        )
    counts = torch.load(checkpoint / COUNTS, map_location="cpu", weights_only=True)
    if not counts.get(MADE):
        raise IncompatibleCheckpoint(
            f"its {COUNTS} does not describe the model: an older job wrote it"
        )
    made = counts[MADE]
    return Made(
        data=part_of(DataSettings, made["data"]),
        model=part_of(ModelSettings, made["model"]),
        shape=tuple(made["shape"]),
        classes=made["classes"],
        step=counts["step"],
    )


def part_of(kind: type[T], values: dict[str, Any]) -> T:
    """Select these settings from the values of a job, which may have others, or lack new ones."""
    names = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: values[name] for name in names if name in values})
