"""The newest complete checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from training.checkpoint.manifest import Damaged, check
from training.stop import Stop

Opened = Callable[[str], AbstractContextManager[str]]
"""From the path of a checkpoint on the storage to a directory with its files."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A complete checkpoint."""

    path: str
    """On the storage."""
    directory: str
    """On this host, with its files."""


class NoUsableCheckpoint(Stop):
    """Checkpoints exist, and none is usable."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}; with start_over=true it begins again at step 0")


@contextmanager
def newest_whole(
    paths: Iterable[str], opened: Opened, damaged: Callable[[str, str], None]
) -> Iterator[Whole | None]:
    """The first of the paths whose checkpoint is complete, held open; None if there is none.

    `damaged` is called for each before it, with the reason. Raises OSError if the storage cannot be
    read at the moment: that is not damage, and the next attempt may succeed.
    """
    for path in paths:
        with ExitStack() as held:
            try:
                directory = held.enter_context(opened(path))
                check(Path(directory))
            except (Damaged, FileNotFoundError) as why:
                damaged(path, str(why) if isinstance(why, Damaged) else "its directory is missing")
                continue
            yield Whole(path, directory)
            return
    yield None


def agreed(choice: tuple[str, str], ranks: int) -> str:
    """Return rank 0's path, or none, on every rank; all raise NoUsableCheckpoint with its reason.

    Uses the ranks' process group. Ray Train's `broadcast_from_rank_zero` uses an actor whose
    process each attempt starts again: 3.6 of the 5.6 s that the run of a killed rank took to
    recover.
    """
    shared = [choice]
    if ranks > 1:
        dist.broadcast_object_list(shared)
    path, why = shared[0]
    if why:
        raise NoUsableCheckpoint(why)
    return path
