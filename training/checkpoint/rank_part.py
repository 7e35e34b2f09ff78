"""One rank's part of a checkpoint, written to the run's storage."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

import torch

from training.checkpoint import manifest
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
    """A file for each state, by its name, and the manifest when all of them are there. The state of
    a file is what `torch.save` takes, the Path of a file, which is copied, or a memoryview of its
    bytes.

    `filesystem` is pyarrow's. The digests are of the bytes that were meant, taken on their way, so
    that a write that goes wrong is found too. Nothing is synced to the disk: what a power failure
    takes, the manifest tells.
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
                torch.save(state, cast("IO[bytes]", written))
        files.append(File(name, written.size_bytes, written.sha256.hexdigest()))
    own = Manifest(rank, world_size, step, tuple(files))
    target = f"{directory}/{manifest.name(rank)}"
    with filesystem.open_output_stream(f"{target}.part") as stream:
        stream.write(own.encode())
    filesystem.move(f"{target}.part", target)


class _Digested:
    """As much of a file as torch.save needs: it never seeks."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.size_bytes = 0
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        self._stream.write(data)
        self.size_bytes += len(data)
        return len(data)

    def flush(self) -> None:
        """The stream flushes when it is closed."""
