"""The directory of a run on its storage, where Ray Train keeps the checkpoints."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from training.checkpoint.manifest import DAMAGED

PREFIX = "checkpoint_"
"""Ray Train's prefix of a checkpoint's directory; the time follows, which sorts."""

SNAPSHOT = "checkpoint_manager_snapshot.json"
"""Ray Train's list of accepted checkpoints, in the run's directory."""

ASIDE = "damaged"
"""The folder of damaged checkpoints, in the run's directory."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    filesystem: Any
    """pyarrow's."""
    path: str

    def checkpoints(self) -> list[str]:
        """The paths of all checkpoints, complete or not, newest first; without damaged ones."""
        from pyarrow.fs import FileSelector  # type: ignore[import-untyped]

        found = self.filesystem.get_file_info(FileSelector(self.path, allow_not_found=True))
        paths = [item.path for item in found if not item.is_file]
        named = [path for path in paths if path.rpartition("/")[2].startswith(PREFIX)]
        unmarked = [path for path in named if not self._exists(f"{path}/{DAMAGED}")]
        return sorted(unmarked, reverse=True)

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
        with self.filesystem.open_input_stream(listed) as stream:
            text = stream.read()
        try:
            results = json.loads(text)["checkpoint_results"]
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
        from pyarrow.fs import FileType

        return bool(self.filesystem.get_file_info(path).type != FileType.NotFound)

    def _moved(self, path: str, kept: str) -> bool:
        """An object store cannot move directories."""
        try:
            self.filesystem.create_dir(kept.rpartition("/")[0])
            self.filesystem.move(path, kept)
        except (NotImplementedError, OSError):
            return False
        return True
