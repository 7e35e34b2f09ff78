"""One run over several drivers.

Ray Train V2 resumes when a new driver is given the storage path and the name of an earlier run, but
assigns a new id. A small file beside the run's checkpoints keeps the first id and the number of
attempts, so that the stream continues the same run.
"""

from __future__ import annotations

import json
import posixpath
from dataclasses import asdict, dataclass
from typing import Any

FILE = ".cockpit-run.json"


@dataclass(frozen=True, slots=True)
class Lineage:
    run: str
    attempts: int = 0
    is_up: bool = False
    """Whether the last attempt had not ended when this was written."""


def read(storage: Any) -> Lineage | None:
    """From Ray Train's StorageContext; None if there is no readable one."""
    filesystem, path = storage.storage_filesystem, _path(storage)
    if not filesystem.get_file_info(path).is_file:
        return None
    with filesystem.open_input_file(path) as file:
        try:
            raw = json.loads(file.readall())
            return Lineage(str(raw["run"]), max(0, int(raw["attempts"])), bool(raw["is_up"]))
        except (ValueError, KeyError, TypeError):
            return None  # incomplete, or another program's


def write(storage: Any, lineage: Lineage) -> None:
    """If that fails, as on a full disk, a local file is as before. Raises OSError."""
    from training.checkpoint.filesystem import write_at_once  # pyarrow is slow to import

    filesystem = storage.storage_filesystem
    filesystem.create_dir(storage.experiment_fs_path, recursive=True)
    write_at_once(filesystem, _path(storage), json.dumps(asdict(lineage)).encode())


def _path(storage: Any) -> str:
    return posixpath.join(storage.experiment_fs_path, FILE)
