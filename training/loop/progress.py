"""Everything that a training loop needs to go on exactly where it was."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from training.parallel import IncompatibleCheckpoint, Parallel
from training.techniques.average import Average
from training.techniques.precision import Precision

COUNTS = "progress.pt"
MADE = "made"
"""Its entry for what the model was made of."""
VERSION = 1
"""Of what is saved here."""


@dataclass
class Progress:
    """What training changes, apart from the random generators of the process.

    `epoch` counts finished epochs, `batch` finished steps of the epoch under way, `step` all
    finished steps.
    """

    parallel: Parallel
    optimizer: Optimizer
    precision: Precision
    average: Average
    model: str
    """Its name, so that the checkpoint of another one is told from damage."""
    steps: int
    """Of an epoch."""
    made: Mapping[str, Any] = field(default_factory=dict)
    """What the model was made of, for those who use it without the job; it is not loaded."""
    tracked: str = ""
    """The id of the tracker's run."""
    epoch: int = 0
    batch: int = 0
    step: int = 0
    epoch_loss: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    """The sum over the steps of the epoch under way, of this rank; on its device."""

    @property
    def epochs(self) -> float:
        """The finished part of the epoch under way included."""
        return self.epoch + self.batch / self.steps

    @property
    def mean_loss(self) -> float:
        """Of the epoch under way, on this rank."""
        return float(self.epoch_loss) / max(1, self.batch)

    def end_step(self, loss: Tensor) -> None:
        self.step, self.batch = self.step + 1, self.batch + 1
        self.epoch_loss += loss

    def end_epoch(self) -> None:
        self.epoch, self.batch = self.epoch + 1, 0
        self.epoch_loss = torch.zeros_like(self.epoch_loss)

    def states(self, rank: int, world_size: int) -> dict[str, Any]:
        """By file, what this rank saves: its generators; rank 0 adds what all ranks share."""
        own = {"generators": generators(), "epoch_loss": float(self.epoch_loss)}
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
                "steps": self.steps,
                "world_size": world_size,
            }
        return states

    def load(self, directory: Path, rank: int, world_size: int) -> str:
        """Go on from a checkpoint. Returns what is not as if nothing had happened, '' for nothing.

        With as many ranks as saved it, all is exact. With another number each step still has the
        examples that it would have had, but their noise and the order of sums are other ones.
        Raises IncompatibleCheckpoint when it is not a checkpoint of this model and optimiser.
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
        saved = shared["world_size"]
        # A rank that is new goes on from the mean loss that another one saw.
        own = torch.load(directory / own_file(min(rank, saved - 1)), weights_only=True)
        self.epoch_loss.fill_(own["epoch_loss"])
        if rank < saved:
            restore(own["generators"])
        if shared["steps"] != self.steps:
            self.batch = 0
            self.epoch_loss.zero_()
            return f"batches of another size, so epoch {self.epoch + 1} begins again"
        if saved != world_size:
            return f"saved by {saved} ranks, now {world_size}: same examples, other noise"
        return ""


def own_file(rank: int) -> str:
    return f"rank-{rank}.pt"


def seed_all(seed: int, rank: int) -> None:
    """Generators that differ by rank and repeat by run."""
    own = int(np.random.SeedSequence((seed, rank)).generate_state(1)[0])
    random.seed(own)
    np.random.seed(own)
    torch.manual_seed(own)


def generators() -> dict[str, Any]:
    """The states of Python's, NumPy's and torch's generators, of types that torch.load trusts."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": (name, [int(key) for key in keys], position, has_gauss, gauss),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def restore(states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    name, keys, position, has_gauss, gauss = states["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, gauss))
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
