"""The checkpoints of a Ray Train run, as one of its ranks writes and finds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from threading import Semaphore
from typing import Any

from training.checkpoint.rank_part import write
from training.checkpoint.restore import agreed, newest_whole
from training.checkpoint.snapshot import snapshot
from training.checkpoint.storage import RunDirectory
from training.telemetry.worker import attempt_observer

REPORTED_TIMEOUT_S = 30.0

SNAPSHOTS = 2
"""How many checkpoints may be in memory on their way to the storage before training waits."""


class RunCheckpoints:
    """In the background, a checkpoint costs training a copy in memory and Ray Train's barrier.

    The run can resume from it once the controller has accepted it, at its first poll after all
    ranks have written their parts.
    """

    def __init__(self, *, in_background: bool, may_start_over: bool, start_from: str = "") -> None:
        """`start_from`: the initial checkpoint of a run that has none of its own."""
        import ray.train

        context = ray.train.get_context()
        self._rank, self._world_size = context.get_world_rank(), context.get_world_size()
        storage = context.get_storage()
        self._run = RunDirectory(storage.storage_filesystem, storage.experiment_fs_path)
        self._in_background, self._may_start_over = in_background, may_start_over
        self._start_from = start_from
        self._room = Semaphore(SNAPSHOTS)

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        """Call on all ranks."""
        import ray.train

        ray.train.report(dict(metrics))

    def report(self, metrics: Mapping[str, float], step: int, states: Mapping[str, Any]) -> None:
        """Call on all ranks. The states may change after it returns."""
        import ray.train
        from ray.train import Checkpoint, CheckpointUploadMode

        held = dict(states)
        if self._in_background:
            self._room.acquire()
            held = snapshot(held)

        def upload(_: Any, name: str) -> Any:
            path = f"{self._run.path}/{name}"
            ranks = {"rank": self._rank, "world_size": self._world_size}
            write(self._run.filesystem, path, held, step=step, **ranks)
            held.clear()  # Ray keeps this function until the controller has accepted it
            self._room.release()
            return Checkpoint(path, self._run.filesystem)

        mode = CheckpointUploadMode.ASYNC if self._in_background else CheckpointUploadMode.SYNC
        ray.train.report(
            dict(metrics),
            # Ray requires a checkpoint to upload; ours is in memory.
            checkpoint=Checkpoint(self._run.path, self._run.filesystem),
            checkpoint_upload_mode=mode,
            checkpoint_upload_fn=upload,
            delete_local_checkpoint_after_upload=False,
        )

    def newest_step(self) -> int:
        """The step of the newest accepted checkpoint, which is not verified; -1 if there is none.

        Call it on one rank.
        """
        import ray.train

        newest = ray.train.get_checkpoint()
        return -1 if newest is None else self._run.step(newest.path)

    @contextmanager
    def newest(self) -> Iterator[Path | None]:
        """Return the newest complete checkpoint. Rank 0 reads all of it, and sends its name to the
        others.

        Raises NoUsableCheckpoint on all ranks if the run has checkpoints and none is complete.
        """
        with ExitStack() as held:
            choice = self._choose(held) if self._rank == 0 else ("", "")
            path = agreed(choice, self._world_size)
            yield Path(held.enter_context(self._opened(path))) if path else None

    def _choose(self, held: ExitStack) -> tuple[str, str]:
        """A path, or why there is none; neither for a new run."""
        import ray.train

        newest, whole = ray.train.get_checkpoint(), None
        if newest is not None:
            found = newest_whole(self._accepted(newest.path), self._opened, self._damaged)
            whole = held.enter_context(found)
        if whole is None:
            found = newest_whole(self._run.checkpoints(), self._opened, self._unfinished)
            whole = held.enter_context(found)
        if whole is not None:
            return whole.path, ""
        if self._start_from:
            found = newest_whole([self._start_from], self._opened, self._unfinished)
            if (whole := held.enter_context(found)) is not None:
                return whole.path, ""
        if newest is None and not self._run.lost_track and not self._start_from:
            return "", ""
        why = f"no checkpoint in {self._run.shown(self._run.path)} is whole"
        if not self._may_start_over:
            return "", why
        print(f"{why}: the run starts over")
        return "", ""

    def _accepted(self, newest: str) -> Iterator[str]:
        """Ray Train's list, newest first. The others are requested only if the newest is not
        usable.
        """
        import ray.train

        yield newest
        reported = ray.train.get_all_reported_checkpoints(timeout_s=REPORTED_TIMEOUT_S)
        for item in reversed(reported):
            if item.checkpoint.path != newest:
                yield item.checkpoint.path

    def _damaged(self, path: str, why: str) -> None:
        done = self._run.put_aside(path, why)
        text = f"{path.rpartition('/')[2]} is damaged and not used: {why}; {done}"
        attempt_observer.notice("CheckpointDamaged", text)
        print(text, flush=True)

    def _unfinished(self, path: str, why: str) -> None:
        """A kill during an upload leaves one; it does not count as a loss, and is kept."""
        print(f"{path.rpartition('/')[2]} is unfinished and not used: {why}", flush=True)

    def _opened(self, path: str) -> AbstractContextManager[str]:
        from ray.train import Checkpoint

        opened: AbstractContextManager[str] = Checkpoint(path, self._run.filesystem).as_directory()
        return opened
