"""The complete state of a training loop, to resume exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from training.loop import generators
from training.parallel import IncompatibleCheckpoint, Parallel
from training.techniques.average import Average
from training.techniques.precision import Precision

COUNTS = "progress.pt"
MADE = "made"
"""The entry that describes the model."""
VERSION = 1
"""The version of the saved state."""


@dataclass
class Progress:
    """The state that training changes, apart from the random generators of the process.

    `epoch` counts completed epochs, `batch` completed steps of the current epoch, `step` all
    completed steps.
    """

    parallel: Parallel
    optimizer: Optimizer
    precision: Precision
    average: Average
    model: str
    """Its name, to distinguish the checkpoint of another model from a damaged one."""
    steps: int
    """The steps of an epoch."""
    made: Mapping[str, Any] = field(default_factory=dict)
    """The description of the model, for programs that use it without the job; it is not loaded."""
    tracked: str = ""
    """The id of the tracker's run."""
    epoch: int = 0
    batch: int = 0
    step: int = 0
    trained_s: float = 0.0
    """The time of all attempts, until the newest checkpoint."""
    interruptions: int = 0
    """How often the run was resumed."""
    epoch_loss: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    """The sum over the steps of the current epoch, of this rank; on its device."""

    @property
    def epochs(self) -> float:
        """Including the completed part of the current epoch."""
        return self.epoch + self.batch / self.steps

    @property
    def mean_loss(self) -> Tensor:
        """The mean of the current epoch, on this rank and its device."""
        return self.epoch_loss / max(1, self.batch)

    def end_step(self, loss: Tensor) -> None:
        self.step, self.batch = self.step + 1, self.batch + 1
        self.epoch_loss += loss

    def end_epoch(self) -> None:
        self.epoch, self.batch = self.epoch + 1, 0
        self.epoch_loss = torch.zeros_like(self.epoch_loss)

    def states(
        self, rank: int, world_size: int, noise: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """By file, the state of this rank: its generators; rank 0 adds the shared state.

        `noise`: the states of the generators after the step, if it is later.
        """
        own = {"generators": noise or generators.states(), "epoch_loss": float(self.epoch_loss)}
        states = {own_file(rank): own, **self.parallel.states(self.optimizer, self.average)}
        if rank == 0:
            states[COUNTS] = {
                "version": VERSION,
                "model": self.model,
                "optimizer": type(self.optimizer).__name__,
                MADE: dict(self.made),
                "tracked": self.tracked,
                "scaler": self.precision.scaler.state_dict(),
                "epoch": self.epoch,
                "batch": self.batch,
                "step": self.step,
                "trained_s": self.trained_s,
                "interruptions": self.interruptions,
                "steps": self.steps,
                "world_size": world_size,
            }
        return states

    def load(self, directory: Path, rank: int, world_size: int) -> str:
        """Resume from a checkpoint. Returns what differs from an uninterrupted run, '' for nothing.

        With the same number of ranks, resuming is exact. With another number each step still has
        the same examples, but the noise and the order of sums differ. Raises IncompatibleCheckpoint
        if it is not a checkpoint of this model and optimiser.
        """
        try:
            return self._load(directory, rank, world_size)
        except IncompatibleCheckpoint as why:
            raise IncompatibleCheckpoint(
                f"{directory} is of another run: {why}; resume with the code and settings "
                "that saved it, or give another run_name or storage_path to start a new run"
            ) from None

    def _load(self, directory: Path, rank: int, world_size: int) -> str:
        if not (directory / COUNTS).exists():
            raise IncompatibleCheckpoint(
                f"it has no {COUNTS}, so another version of this code wrote it"
            )
        shared = torch.load(directory / COUNTS, map_location="cpu", weights_only=True)
        if shared["version"] != VERSION:
            raise IncompatibleCheckpoint(
                f"it is of version {shared['version']}, and this code writes {VERSION}"
            )
        if shared["model"] != self.model:
            raise IncompatibleCheckpoint(f"it is of the model {shared['model']}, not {self.model}")
        if shared["optimizer"] != type(self.optimizer).__name__:
            raise IncompatibleCheckpoint(
                f"it is of the optimizer {shared['optimizer']}, not {type(self.optimizer).__name__}"
            )
        self.parallel.load(directory, self.optimizer, self.average)
        if self.precision.scaler.is_enabled() and shared["scaler"]:
            self.precision.scaler.load_state_dict(shared["scaler"])
        self.epoch, self.batch, self.step = shared["epoch"], shared["batch"], shared["step"]
        self.tracked = shared.get("tracked", "")
        self.trained_s = shared.get("trained_s", 0.0)
        self.interruptions = shared.get("interruptions", 0) + 1
        saved = shared["world_size"]
        # A new rank continues with the mean loss of another one.
        own = torch.load(directory / own_file(min(rank, saved - 1)), weights_only=True)
        self.epoch_loss.fill_(own["epoch_loss"])
        if rank < saved:
            generators.restore(own["generators"])
        if shared["steps"] != self.steps:
            self.batch = 0
            self.epoch_loss.zero_()
            return f"batches of another size, so epoch {self.epoch + 1} begins again"
        if saved != world_size:
            return f"saved by {saved} ranks, now {world_size}: same examples, other noise"
        return ""


def own_file(rank: int) -> str:
    return f"rank-{rank}.pt"
