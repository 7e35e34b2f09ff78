"""The checkpoints of a run without Ray Train, in a folder or bucket that all ranks see."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any

from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]

from training.checkpoint.rank_part import write
from training.checkpoint.restore import agreed, newest_whole
from training.checkpoint.snapshot import snapshot
from training.checkpoint.storage import METRICS, PREFIX, Best, RunDirectory
from training.telemetry.worker import attempt_observer

PARTS_S = 120.0
"""How long rank 0 waits for the other ranks' parts of a checkpoint."""
_CHECK_EVERY_S = 0.02
_CHECK_STORE_EVERY_S = 0.5
"""Each check is a request to the object store."""


class FolderCheckpoints:
    """Each rank writes its part separately; a checkpoint is complete when all manifests exist."""

    def __init__(
        self,
        where: Path | RunDirectory,
        rank: int,
        world_size: int,
        *,
        in_background: bool = True,
        may_start_over: bool = False,
        keep: int = 3,
        best: Best | None = None,
        finished: Callable[[Mapping[str, float], str], None] = lambda metrics, checkpoint: None,
    ) -> None:
        """`keep`: the newest ones. With `best`, these and the newest one are kept instead.

        `finished` is called on rank 0 with reported metrics and the path of their checkpoint, when
        it is complete, on another thread; '' if there is none.
        """
        self._run = (
            where
            if isinstance(where, RunDirectory)
            else RunDirectory(LocalFileSystem(), os.fspath(where))
        )
        is_local = isinstance(self._run.filesystem, LocalFileSystem)
        self._check_every_s = _CHECK_EVERY_S if is_local else _CHECK_STORE_EVERY_S
        self._rank, self._world_size = rank, world_size
        self._in_background, self._may_start_over = in_background, may_start_over
        self._keep, self._best, self._finished = keep, best, finished
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

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        if self._rank == 0:
            self._finished(metrics, "")

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
        if self._rank == 0:
            states = {**states, METRICS: memoryview(json.dumps(metrics).encode())}
        write(self._run.filesystem, path, states, step=step, **ranks)
        if self._rank == 0 and self._has_all(path):
            self._finished(metrics, path)
            self._rotate(path)

    def _rotate(self, newest: str) -> None:
        # Those of later steps remain from before the run resumed at an earlier one.
        own = [at for at in self._run.checkpoints() if at <= newest]
        complete = [at for at in own if self._run.is_finished(at)]
        if self._best is None:
            kept = set(complete[: self._keep])
        else:
            metric = self._best.metric
            scores = {at: self._run.metrics(at).get(metric, math.nan) for at in complete}
            kept = {newest, *self._best.names(scores)}
        oldest_kept = min(kept)
        for old in own:
            if old not in kept and (old in complete or old < oldest_kept):
                self._run.delete(old)

    def _has_all(self, path: str) -> bool:
        """Wait for the other ranks' parts: until then the previous one must not be deleted."""
        deadline = time.monotonic() + PARTS_S
        while not self._run.is_finished(path):
            if self._is_left.wait(self._check_every_s):
                return False
            if time.monotonic() > deadline:
                print(f"{path.rpartition('/')[2]} is unfinished after {PARTS_S:.0f} s", flush=True)
                return False
        return True

    def newest_step(self) -> int:
        """The step of the newest finished checkpoint, which is not verified; -1 if there is none.

        Call it on one rank.
        """
        finished = (path for path in self._run.checkpoints() if self._run.is_finished(path))
        return next((self._run.step(path) for path in finished), -1)

    @contextmanager
    def newest(self) -> Iterator[Path | None]:
        """Return the newest complete checkpoint. Rank 0 reads all of it, and sends its name to the
        others.

        Raises NoUsableCheckpoint on all ranks if checkpoints exist and none is complete.
        """
        with ExitStack() as held:
            choice = self._choose(held) if self._rank == 0 else ("", "", "")
            path = agreed(choice[:2], self._world_size)
            if path and not (directory := choice[2]):
                directory = held.enter_context(self._run.opened(path))
            yield Path(directory) if path else None

    def _choose(self, held: ExitStack) -> tuple[str, str, str]:
        """A path, or why there is none, neither for a new run; and the directory of its files."""
        there = self._run.checkpoints()
        found = held.enter_context(newest_whole(there, self._run.opened, self._unused))
        if found is not None:
            self._run.unfinish(there[: there.index(found.path)])
            return found.path, "", found.directory
        if any(self._run.is_finished(path) for path in there):
            why = f"no checkpoint in {self._run.shown(self._run.path)} is whole"
            if not self._may_start_over:
                return "", why, ""
            print(f"{why}: the run starts over", flush=True)
        self._run.unfinish(there)
        return "", "", ""

    def _unused(self, path: str, why: str) -> None:
        """It is kept until the run has saved its step again, and enough checkpoints after it."""
        text = f"{path.rpartition('/')[2]} is not used: {why}"
        if self._run.is_finished(path):
            attempt_observer.notice("CheckpointDamaged", text)
        print(text, flush=True)
