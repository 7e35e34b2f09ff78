"""The checkpoints of a run without Ray Train, in a folder that all ranks see."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any

from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]

from training.checkpoint.manifest import is_finished
from training.checkpoint.rank_part import write
from training.checkpoint.restore import agreed, newest_whole
from training.checkpoint.snapshot import snapshot
from training.checkpoint.storage import PREFIX, RunDirectory
from training.telemetry.worker import attempt_observer

PARTS_S = 120.0
"""How long rank 0 waits for the other ranks' parts of a checkpoint."""
_CHECK_EVERY_S = 0.02


class FolderCheckpoints:
    """Each rank writes its part separately; a checkpoint is complete when all manifests exist."""

    def __init__(
        self,
        folder: Path,
        rank: int,
        world_size: int,
        *,
        in_background: bool = True,
        may_start_over: bool = False,
        keep: int = 3,
        finished: Callable[[Mapping[str, float], Path], None] = lambda metrics, checkpoint: None,
    ) -> None:
        """`finished` is called on rank 0, on another thread, when a checkpoint is complete."""
        self._run = RunDirectory(LocalFileSystem(), os.fspath(folder))
        self._rank, self._world_size = rank, world_size
        self._in_background, self._may_start_over = in_background, may_start_over
        self._keep, self._finished = keep, finished
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._is_left = Event()
        self._under_way: Future[None] | None = None

    def __enter__(self) -> FolderCheckpoints:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait until writing has finished; raises its error.

        After an error it does not wait for the other ranks' parts: they may be the cause.
        """
        if error is not None:
            self._is_left.set()
        self._writer.shutdown()
        if error is None:
            self._finish()

    def report(self, metrics: Mapping[str, float], step: int, states: Mapping[str, Any]) -> None:
        """Wait for the previous checkpoint. Raises OSError if that could not be written."""
        self._finish()
        held = snapshot(dict(states)) if self._in_background else dict(states)
        self._under_way = self._writer.submit(self._write, dict(metrics), held, step)
        if not self._in_background:
            self._finish()

    def _finish(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def _write(self, metrics: Mapping[str, float], states: Mapping[str, Any], step: int) -> None:
        path = f"{self._run.path}/{PREFIX}{step:012}"
        ranks = {"rank": self._rank, "world_size": self._world_size}
        write(self._run.filesystem, path, states, step=step, **ranks)
        if self._rank == 0 and self._has_all(Path(path)):
            self._finished(metrics, Path(path))
            # Those of later steps remain from before the run resumed at an earlier one.
            own = [at for at in self._run.checkpoints() if at <= path]
            kept = [at for at in own if is_finished(Path(at))][: self._keep]
            for old in own:
                if old < kept[-1]:
                    shutil.rmtree(old)

    def _has_all(self, path: Path) -> bool:
        """Wait for the other ranks' parts: until then the previous one must not be deleted."""
        deadline = time.monotonic() + PARTS_S
        while not is_finished(path):
            if self._is_left.wait(_CHECK_EVERY_S):
                return False
            if time.monotonic() > deadline:
                print(f"{path.name} is unfinished after {PARTS_S:.0f} s", flush=True)
                return False
        return True

    @contextmanager
    def newest(self) -> Iterator[Path | None]:
        """Return the newest complete checkpoint. Rank 0 reads all of it, and sends its name to the
        others.

        Raises NoUsableCheckpoint on all ranks if checkpoints exist and none is complete.
        """
        path = agreed(self._choose() if self._rank == 0 else ("", ""), self._world_size)
        yield Path(path) if path else None

    def _choose(self) -> tuple[str, str]:
        """A path, or why there is none; neither for a new run."""
        there = self._run.checkpoints()
        with newest_whole(there, nullcontext, self._unused) as path:
            if path is not None:
                _unfinish(there[: there.index(path)])
                return path, ""
        if any(is_finished(Path(path)) for path in there):
            why = f"no checkpoint in {self._run.path} is whole"
            if not self._may_start_over:
                return "", why
            print(f"{why}: the run starts over", flush=True)
        _unfinish(there)
        return "", ""

    def _unused(self, path: str, why: str) -> None:
        """It is kept until the run has saved its step again, and enough checkpoints after it."""
        text = f"{Path(path).name} is not used: {why}"
        if is_finished(Path(path)):
            attempt_observer.notice("CheckpointDamaged", text)
        print(text, flush=True)


def _unfinish(paths: Iterable[str]) -> None:
    """If such a step is saved again, old manifests would be mistaken for those of ranks that have
    yet to write their parts.
    """
    for path in paths:
        for manifest in Path(path).glob("manifest-*.json"):
            manifest.replace(f"{manifest}.unused")
