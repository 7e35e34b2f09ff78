"""The manifest of a checkpoint, and the check that its files still match it.

Each rank writes its files and then, last, its manifest. A checkpoint is complete when the manifests
of all its ranks exist and agree, and every file has the listed size and SHA-256. So the ranks need
no message to complete one, and an unfinished one cannot be mistaken for a complete one.
"""

from __future__ import annotations

import errno
import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FORMAT = 1
"""The version of the manifest and of the files' content."""

NAME_BYTES = 255
"""The maximum length of a file's name on most file systems."""

DAMAGED = "DAMAGED"
"""Marks a damaged checkpoint's directory; contains the reason, as one line."""


class Damaged(ValueError):
    """Why a checkpoint must not be used, as one line without its name."""


@dataclass(frozen=True, slots=True)
class File:
    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    rank: int
    world_size: int
    step: int
    files: tuple[File, ...]
    format: int = FORMAT

    def encode(self) -> bytes:
        data = asdict(self)
        return json.dumps({"manifest": data, "sha256": _digest(data)}, indent=1).encode()


def name(rank: int) -> str:
    return f"manifest-{rank}.json"


def check(directory: Path) -> Manifest:
    """Read every byte of the checkpoint. Returns rank 0's manifest.

    Raises Damaged, and OSError if the storage cannot be read at the moment.
    """
    if not directory.is_dir():
        raise Damaged("its directory is missing")
    if (directory / DAMAGED).exists():
        why = (directory / DAMAGED).read_text(errors="replace").partition("\n")[0]
        raise Damaged(f"marked before: {why}")
    first = _read(directory, 0)
    for rank in range(first.world_size):
        manifest = _read(directory, rank) if rank else first
        if (manifest.step, manifest.world_size) != (first.step, first.world_size):
            raise Damaged(
                f"rank {rank}'s part is of step {manifest.step} and {manifest.world_size} ranks, "
                f"rank 0's of step {first.step} and {first.world_size}"
            )
        for file in manifest.files:
            _compare(directory / file.name, file)
    return first


def files(directory: Path) -> dict[str, File]:
    """The files that the manifests of all ranks list, by name; no file is read.

    Raises Damaged.
    """
    first = _read(directory, 0)
    others = (_read(directory, rank) for rank in range(1, first.world_size))
    return {file.name: file for manifest in (first, *others) for file in manifest.files}


def read_file(directory: Path, name: str) -> bytes:
    """The content of a listed file, with its size and SHA-256 verified while it is read.

    Raises Damaged if no manifest lists it or the content differs, and OSError.
    """
    file = files(directory).get(name)
    if file is None:
        raise Damaged(f"{name} is not listed in any manifest")
    try:
        with (directory / name).open("rb") as stream:
            content = stream.read(file.size_bytes + 1)
    except FileNotFoundError:
        raise Damaged(f"{name} is missing") from None
    if len(content) != file.size_bytes or hashlib.sha256(content).hexdigest() != file.sha256:
        raise Damaged(f"{name} is not what was written: its SHA-256 differs")
    return content


def _read(directory: Path, rank: int) -> Manifest:
    try:
        text = (directory / name(rank)).read_bytes()
    except FileNotFoundError:
        raise Damaged(f"{name(rank)} is missing: rank {rank} did not finish its part") from None
    return decode(text, rank)


def decode(text: bytes, rank: int) -> Manifest:
    """Raises Damaged if it is not the manifest of this rank."""
    try:
        whole = json.loads(text)
        reported, digest = whole["manifest"], whole["sha256"]
        if digest != _digest(reported):
            raise Damaged(f"{name(rank)} is not what was written")
        if reported["format"] != FORMAT:
            raise Damaged(f"{name(rank)} is of format {reported['format']}; this reads {FORMAT}")
        listed = tuple(File(**file) for file in reported["files"])
        found = Manifest(**reported | {"files": listed})
    except Damaged:
        raise
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Damaged(f"{name(rank)} is garbled") from error
    if not _is_plausible(found, rank):
        raise Damaged(f"{name(rank)} is garbled")
    return found


def _is_plausible(manifest: Manifest, rank: int) -> bool:
    """Whether every field has its type and range, and every file is in the directory itself."""
    numbers = (manifest.world_size, manifest.step, *(file.size_bytes for file in manifest.files))
    return (
        all(type(number) is int and 0 <= number < 1 << 63 for number in numbers)
        and type(manifest.rank) is int
        and manifest.rank == rank < manifest.world_size
        and all(
            type(file.name) is str
            and type(file.sha256) is str
            and file.name not in ("", ".", "..")
            and not {"/", "\0"} & set(file.name)
            and file.name.isprintable()
            and len(file.name.encode()) <= NAME_BYTES
            for file in manifest.files
        )
    )


def _compare(path: Path, file: File) -> None:
    try:
        size_bytes = path.stat().st_size
        if size_bytes != file.size_bytes:
            raise Damaged(f"{file.name} has {size_bytes:,} of {file.size_bytes:,} bytes")
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        raise Damaged(f"{file.name} is missing") from None
    except OSError as error:
        if error.errno != errno.EIO:  # the error of a bad disk; other errors may be temporary
            raise
        raise Damaged(f"{file.name} cannot be read: {error.strerror}") from error
    if digest != file.sha256:
        raise Damaged(f"{file.name} is not what was written: its SHA-256 differs")


def _digest(data: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
