"""The interface to a training loop's checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from training.loop.progress import Progress


class Checkpoints(Protocol):
    """The checkpoints of one rank; all ranks call the same."""

    def newest(self) -> AbstractContextManager[Path | None]:
        """The directory of the newest complete checkpoint, if there is one.

        Raises NoUsableCheckpoint if checkpoints exist and none is usable.
        """
        ...

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        """Report metrics without a checkpoint."""
        ...

    def report(self, metrics: Mapping[str, float], step: int, states: Mapping[str, Any]) -> None:
        """Report metrics, and save the states, a file each; they may change after it returns.

        The state of a file is what `torch.save` accepts, the Path of a file, which is copied, or a
        memoryview of its bytes.
        """
        ...


class StepCheckpoints(Protocol):
    """Checkpoints after steps, which are written while the next step computes."""

    def before_update(self, step: int) -> float:
        """Call it before the state changes in this step. Returns how long it waited, in seconds."""
        ...

    def after_step(self, progress: Progress) -> float:
        """Begin to save the state if it is due. Returns how long it took, in seconds.

        Raises Stop on every rank.
        """
        ...
