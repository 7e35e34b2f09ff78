"""Everything that a training loop needs to go on exactly where it was: one directory."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

SHARED = "shared.pt"


@dataclass
class Progress:
    """What training changes, apart from the random generators of the process.

    `epoch` counts finished epochs, `batch` finished batches of the epoch under way, `step` all
    finished steps.
    """

    model: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler
    epoch: int = 0
    batch: int = 0
    step: int = 0
    epoch_loss: float = 0.0
    """The sum over the batches of the epoch under way, of this rank."""

    def save(self, directory: Path, rank: int, world_size: int) -> None:
        """This rank's part, which is its generators; rank 0 adds what all ranks share."""
        own = {"generators": generators(), "epoch_loss": self.epoch_loss}
        torch.save(own, directory / f"rank-{rank}.pt")
        if rank == 0:
            shared = {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "epoch": self.epoch,
                "batch": self.batch,
                "step": self.step,
                "world_size": world_size,
            }
            torch.save(shared, directory / SHARED)

    def load(self, directory: Path, rank: int, world_size: int) -> bool:
        """Go on from a checkpoint; whether that is exact.

        It is when as many ranks saved as now load. With another number the batches are other
        ones: the epoch under way starts again and this rank keeps the generators that it has.
        """
        shared = torch.load(directory / SHARED, map_location="cpu", weights_only=True)
        self.model.load_state_dict(shared["model"])
        self.optimizer.load_state_dict(shared["optimizer"])
        self.scheduler.load_state_dict(shared["scheduler"])
        self.epoch, self.batch, self.step = shared["epoch"], shared["batch"], shared["step"]
        if shared["world_size"] != world_size:
            self.batch, self.epoch_loss = 0, 0.0
            return False
        own = torch.load(directory / f"rank-{rank}.pt", map_location="cpu", weights_only=True)
        self.epoch_loss = own["epoch_loss"]
        restore(own["generators"])
        return True


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
