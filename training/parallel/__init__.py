"""How a model is distributed over the ranks of a world, applied from outside."""

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
        """The module to call; its gradients are the mean over the ranks."""
        ...

    @property
    def casts_itself(self) -> bool:
        """Whether it lowers the precision itself, so that the loop must not."""
        ...

    @property
    def in_parts(self) -> bool:
        """Whether each rank has a part of the gradients, and cannot check alone whether all are
        finite.
        """
        ...

    @property
    def uses_ddp(self) -> bool:
        """Whether DDP averages its gradients, so that DDP's settings apply."""
        ...

    @property
    def saves_alone(self) -> bool:
        """Whether `states` calls no other rank and returns the tensors themselves, so that it can
        be called on any thread until they change.
        """
        ...

    @property
    def example_groups(self) -> World:
        """The ranks that divide the examples of a step. Ranks that process the same examples, such
        as a pipeline's stages, count once.
        """
        ...

    def optimizer(self, settings: TrainSettings) -> Optimizer:
        """The weights, or the parts of them, on this rank."""
        ...

    def passes(
        self, step: Step, precision: Precision, settings: TrainSettings
    ) -> tuple[Tensor, float]:
        """One step's forward and backward passes, as in `training.loop.forward_backward`."""
        ...

    def accumulating(self) -> AbstractContextManager[object]:
        """A context for the passes of a micro-batch that is not the last of its step: its gradients
        stay on their rank.
        """
        ...

    def clip(self, longest: float) -> Tensor:
        """The norm of the whole gradient, which is clipped to `longest`; 0: not clipped."""
        ...

    def states(self, optimizer: Optimizer, average: Average) -> dict[str, Any]:
        """By file, this rank's state of the model, its optimiser and its average."""
        ...

    def load(self, directory: Path, optimizer: Optimizer, average: Average) -> None:
        """Load the same from a checkpoint's directory.

        Raises IncompatibleCheckpoint if the checkpoint is of another model or optimiser.
        """
        ...


class IncompatibleCheckpoint(Stop):
    """A complete checkpoint of another model or optimiser."""
