"""The directory of a run on its storage, where Ray Train keeps the checkpoints."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from pyarrow.fs import FileSelector  # type: ignore[import-untyped]

from training.checkpoint import filesystem as files
from training.checkpoint import manifest
from training.checkpoint.manifest import DAMAGED, Damaged

PREFIX = "checkpoint_"
"""Ray Train's prefix of a checkpoint's directory; the time follows, which sorts."""

SNAPSHOT = "checkpoint_manager_snapshot.json"
"""Ray Train's list of accepted checkpoints, in the run's directory."""

ASIDE = "damaged"
"""The folder of damaged checkpoints, in the run's directory."""

METRICS = "metrics.json"
"""What was reported with a checkpoint, in its directory, without Ray Train: its list has them."""


@dataclass(frozen=True, slots=True)
class Best:
    """The checkpoints to keep instead of the newest ones."""

    count: int
    metric: str
    highest: bool

    def names(self, scores: Mapping[str, float]) -> set[str]:
        """Of the scores by name, the names of the best; a later one wins a tie."""
        sign = 1 if self.highest else -1
        finite = [name for name, score in scores.items() if math.isfinite(score)]
        return set(sorted(finite, key=lambda at: (sign * scores[at], at))[-self.count :])


@dataclass(frozen=True, slots=True)
class RunDirectory:
    filesystem: Any
    """pyarrow's."""
    path: str

    def checkpoints(self) -> list[str]:
        """The paths of all checkpoints, complete or not, newest first; without damaged ones."""
        found = self.filesystem.get_file_info(FileSelector(self.path, allow_not_found=True))
        # Some S3 servers list a directory twice: as an object and as a prefix.
        paths = {item.path for item in found if not item.is_file}
        named = [path for path in paths if path.rpartition("/")[2].startswith(PREFIX)]
        unmarked = [path for path in named if not self._exists(f"{path}/{DAMAGED}")]
        return sorted(unmarked, reverse=True)

    def is_finished(self, path: str) -> bool:
        """Whether all ranks of a checkpoint have reported their parts as written; `check` verifies
        them.
        """
        there = self.filesystem.get_file_info(FileSelector(path, allow_not_found=True))
        names = {item.base_name for item in there}
        if manifest.name(0) not in names:
            return False
        try:
            first = manifest.decode(self._read(f"{path}/{manifest.name(0)}"), 0)
        except Damaged:
            return True
        return all(manifest.name(rank) in names for rank in range(first.world_size))

    def unfinish(self, paths: Iterable[str]) -> None:
        """If such a step is saved again, old manifests would be mistaken for those of ranks that
        have yet to write their parts.
        """
        for path in paths:
            for item in self.filesystem.get_file_info(FileSelector(path, allow_not_found=True)):
                if item.base_name.startswith("manifest-") and item.base_name.endswith(".json"):
                    self.filesystem.move(item.path, f"{item.path}.unused")

    def metrics(self, path: str) -> dict[str, float]:
        """What was reported with a checkpoint; empty if it was not saved with it."""
        try:
            found: dict[str, float] = json.loads(self._read(f"{path}/{METRICS}"))
        except (FileNotFoundError, ValueError):
            return {}
        return found

    def step(self, path: str) -> int:
        """The step that rank 0's manifest names; -1 if it cannot be read. Nothing is verified."""
        try:
            return manifest.decode(self._read(f"{path}/{manifest.name(0)}"), 0).step
        except (OSError, Damaged):
            return -1

    def delete(self, path: str) -> None:
        self.filesystem.delete_dir(path)

    def opened(self, path: str) -> AbstractContextManager[str]:
        """A directory on this host with the files of a checkpoint."""
        return files.on_disk(self.filesystem, path)

    def shown(self, path: str) -> str:
        """A path of this storage as users write it."""
        return files.shown(self.filesystem, path)

    def _read(self, path: str) -> bytes:
        with self.filesystem.open_input_stream(path) as stream:
            content: bytes = stream.read()
        return content

    def put_aside(self, path: str, why: str) -> str:
        """Prevent the use and the deletion of a damaged checkpoint. Returns what was done, as text.

        An empty directory of its name remains, with the reason in it: Ray Train refuses to continue
        a run when one of the checkpoints on its list is missing (Ray 2.60,
        CheckpointManager._assert_checkpoints_exist).
        """
        kept = f"{self.path}/{ASIDE}/{path.rpartition('/')[2]}"
        try:
            if self._exists(f"{path}/{DAMAGED}"):
                return "it was put aside before"
            is_there = self._exists(path)
            moved = is_there and self._moved(path, kept)
            self.filesystem.create_dir(path)
            with self.filesystem.open_output_stream(f"{path}/{DAMAGED}") as stream:
                stream.write(f"{why}\n".encode())
        except OSError as error:
            return f"it could not be put aside ({error})"
        if moved:
            return f"kept in {kept}"
        return "marked as damaged" if is_there else "a marked directory is in its place"

    def repair(self) -> list[str]:
        """Before a driver starts: repair what would prevent Ray Train from starting; returns the
        changes.

        Repairs a listed checkpoint that is missing, and a truncated list.
        """
        listed = f"{self.path}/{SNAPSHOT}"
        if not self._exists(listed):
            return []
        try:
            results = json.loads(self._read(listed))["checkpoint_results"]
            names = [str(result["checkpoint_dir_name"]) for result in results]
        except (ValueError, TypeError, KeyError):
            self.filesystem.move(listed, f"{listed}.{ASIDE}")
            return [f"{listed} is garbled; put aside as {SNAPSHOT}.{ASIDE}"]
        missing = [name for name in names if not self._exists(f"{self.path}/{name}")]
        why = "its directory was missing"
        return [f"{n} is missing: {self.put_aside(f'{self.path}/{n}', why)}" for n in missing]

    @property
    def lost_track(self) -> bool:
        """Ray Train's list was moved aside: it no longer knows the checkpoints that it had
        accepted.
        """
        return self._exists(f"{self.path}/{SNAPSHOT}.{ASIDE}")

    def _exists(self, path: str) -> bool:
        return files.exists(self.filesystem, path)

    def _moved(self, path: str, kept: str) -> bool:
        """An object store cannot move directories."""
        try:
            self.filesystem.create_dir(kept.rpartition("/")[0])
            self.filesystem.move(path, kept)
        except (NotImplementedError, OSError):
            return False
        return True
