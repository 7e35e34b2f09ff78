"""Where a training loop's checkpoints go, and come from."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol


class Checkpoints(Protocol):
    """Of one rank; all ranks call the same."""

    def newest(self) -> AbstractContextManager[Path | None]:
        """The directory of the newest checkpoint that is whole, if there is one.

        Raises NoUsableCheckpoint when there were some and none is.
        """
        ...

    def report(self, metrics: Mapping[str, float], step: int, states: Mapping[str, Any]) -> None:
        """Metrics, and a checkpoint of the states, a file each, which may change when it returns.

        The state of a file is what `torch.save` takes, the Path of a file, which is copied, or a
        memoryview of its bytes.
        """
        ...
