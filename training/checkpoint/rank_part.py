"""One rank's part of a checkpoint, written to the run's storage."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

import torch

from training.checkpoint import manifest
from training.checkpoint.filesystem import write_at_once
from training.checkpoint.manifest import File, Manifest


def write(
    filesystem: Any,
    directory: str,
    states: Mapping[str, Any],
    *,
    rank: int,
    world_size: int,
    step: int,
) -> None:
    """Write a file for each state, by its name, and then the manifest. The state of a file is what
    `torch.save` accepts, the Path of a file, which is copied, or a memoryview of its bytes.

    `filesystem` is pyarrow's. The digests are computed from the bytes before they are written, so
    that a failed write is detected too. Nothing is synced to the disk: the manifest shows what a
    power failure lost.
    """
    filesystem.create_dir(directory)
    files = []
    for name, state in states.items():
        with filesystem.open_output_stream(f"{directory}/{name}") as stream:
            written = _Digested(stream)
            if isinstance(state, Path):
                with state.open("rb") as source:
                    shutil.copyfileobj(source, written)
            elif isinstance(state, memoryview):
                written.write(state)
            else:
                _save(state, written)
        files.append(File(name, written.size_bytes, written.sha256.hexdigest()))
    own = Manifest(rank, world_size, step, tuple(files))
    target = f"{directory}/{manifest.name(rank)}"
    write_at_once(filesystem, target, own.encode())


def _save(state: Any, written: _Digested) -> None:
    """Raises OSError if a write fails: torch's own error about the unfinished file would hide it,
    and with it what can be tried again.
    """
    try:
        torch.save(state, cast("IO[bytes]", written))
    except RuntimeError:
        if written.failed is not None:
            raise written.failed from None
        raise


class _Digested:
    """The part of a file object that torch.save needs: it never seeks."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.size_bytes = 0
        self.sha256 = hashlib.sha256()
        self.failed: OSError | None = None

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        try:
            self._stream.write(data)
        except OSError as error:
            self.failed = error
            raise
        self.size_bytes += len(data)
        return len(data)

    def flush(self) -> None:
        """The stream flushes when it is closed."""
