"""How a model is spread over the ranks of a world, applied to it from outside."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn
from torch.optim import Optimizer

from training.data.loader import Step
from training.loop.settings import TrainSettings
from training.loop.world import World
from training.stop import Stop
from training.techniques.average import Average
from training.techniques.precision import Precision


class Parallel(Protocol):
    """A model on the devices of a world. All ranks call the same in the same order."""

    @property
    def model(self) -> nn.Module:
        """What is called; its gradients are the mean over the ranks."""
        ...

    @property
    def casts_itself(self) -> bool:
        """It lowers the precision that was asked for, so that the loop must not."""
        ...

    @property
    def in_parts(self) -> bool:
        """Each rank has a part of the gradients, and cannot tell alone whether all are finite."""
        ...

    @property
    def uses_ddp(self) -> bool:
        """DDP averages its gradients, and heeds what is set for that."""
        ...

    @property
    def learners(self) -> World:
        """The ranks that share out the examples of a step. What ranks of one of them do together,
        as a pipeline's stages, counts once.
        """
        ...

    def optimizer(self, settings: TrainSettings) -> Optimizer:
        """Of the weights, or the parts of them, that this rank has."""
        ...

    def passes(
        self, step: Step, precision: Precision, settings: TrainSettings
    ) -> tuple[Tensor, float]:
        """One step's forward and backward passes, as `training.loop.forward_backward` says."""
        ...

    def accumulating(self) -> AbstractContextManager[object]:
        """Around the passes of a micro-batch that others of the same step follow: its gradients
        stay on their rank.
        """
        ...

    def clip(self, longest: float) -> Tensor:
        """The whole gradient's length. It is cut to `longest`; 0: left as it is."""
        ...

    def states(self, optimizer: Optimizer, average: Average) -> dict[str, Any]:
        """By file, what this rank saves of the model, its optimiser and its average."""
        ...

    def load(self, directory: Path, optimizer: Optimizer, average: Average) -> None:
        """The same, from a checkpoint's directory.

        Raises IncompatibleCheckpoint when the checkpoint is of another model or optimiser.
        """
        ...


class IncompatibleCheckpoint(Stop):
    """A checkpoint is whole, but not of what is trained here."""
