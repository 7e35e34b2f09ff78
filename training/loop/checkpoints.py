"""The interface to a training loop's checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol


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
