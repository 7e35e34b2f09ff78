"""Tensors that are distributed over the ranks, in files that any number of ranks can load.

The files are those of torch.distributed.checkpoint: one for each rank, and `.metadata`, which maps
each part of each tensor to a file. So `torch.distributed.checkpoint.load` of the directory reads
them without this code. `.metadata` is a pickle. It is read only if a manifest lists it with its
digest, and by an unpickler that allows only the classes of a checkpoint of tensors.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.filesystem import (
    FileSystemBase,
    FileSystemReader,
    FileSystemWriter,
)
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

from training.checkpoint.manifest import Damaged, files, read_file

METADATA = ".metadata"

_CHECKPOINT = "torch.distributed.checkpoint"
_ALLOWED = frozenset(
    {
        ("pathlib", "PosixPath"),
        ("pathlib._local", "PosixPath"),  # Python 3.13
        ("torch", "Size"),
        ("torch.serialization", "_get_layout"),
        (f"{_CHECKPOINT}.filesystem", "_StorageInfo"),
        *(
            (f"{_CHECKPOINT}.metadata", name)
            for name in (
                "_MEM_FORMAT_ENCODING",
                "ChunkStorageMetadata",
                "Metadata",
                "MetadataIndex",
                "StorageMeta",
                "TensorProperties",
                "TensorStorageMetadata",
            )
        ),
    }
)
"""The classes in `.metadata` of a checkpoint of tensors (torch 2.15), besides data types. Not
BytesStorageMetadata: torch unpickles such an entry without restrictions when it is loaded.
"""


def save(tensors: Mapping[str, Tensor]) -> dict[str, memoryview]:
    """This rank's files by name, complete and in memory; call on every rank.

    It does not wait for a disk, and a rank that is killed leaves nothing behind. A tensor that
    several ranks have as a whole is in the file of one of them.
    """
    files = _InMemory()
    writer = FileSystemWriter("", sync_files=False)
    writer.fs = files  # type: ignore[assignment]  # typed as the one for disks
    state_dict_saver.save(dict(tensors), storage_writer=writer)
    return {name: stream.getbuffer() for name, stream in files.streams.items()}


def is_in_parts(directory: Path) -> bool:
    """Whether the checkpoint's manifests list `.metadata`. Raises Damaged."""
    return METADATA in files(directory)


def saved(directory: Path) -> dict[str, TensorStorageMetadata]:
    """The checkpoint's tensors, by name: `size` and `properties.dtype` of each.

    Raises Damaged if `.metadata` is not listed, was changed, or contains anything but tensors.
    """
    return {
        name: found
        for name, found in _metadata(directory).state_dict_metadata.items()
        if isinstance(found, TensorStorageMetadata)
    }


def load(directory: Path, tensors: Mapping[str, Tensor]) -> None:
    """Fill this rank's part of each tensor; each rank does so separately.

    Raises CheckpointException if one is not in the checkpoint, Damaged as `saved` does.
    """
    reader = _Reader(directory, _metadata(directory))
    with torch.no_grad(), warnings.catch_warnings():
        # Without it, `no_dist` is treated as a mistake.
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        state_dict_loader.load(dict(tensors), storage_reader=reader, no_dist=True)


def _metadata(directory: Path) -> Metadata:
    try:
        found = _Unpickler(BytesIO(read_file(directory, METADATA))).load()
    except Damaged:
        raise
    except Exception as error:  # any error of the classes' constructors for odd arguments
        raise Damaged(f"{METADATA} cannot be read: {error}") from error
    listed = files(directory)
    if (
        not isinstance(found, Metadata)
        or not isinstance(found.state_dict_metadata, dict)
        or not isinstance(found.storage_data, dict)
        or not all(
            isinstance(name, str) and isinstance(item, TensorStorageMetadata)
            for name, item in found.state_dict_metadata.items()
        )
    ):
        raise Damaged(f"{METADATA} does not describe tensors")
    for item in found.storage_data.values():
        if getattr(item, "relative_path", None) not in listed:
            raise Damaged(f"{METADATA} names a file that is not listed in any manifest")
    return found


class _Unpickler(pickle.Unpickler):
    """Load the classes of `_ALLOWED` and torch's data types."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return super().find_class(module, name)
        if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a checkpoint of tensors")


class _Reader(FileSystemReader):
    """Read tensors by a `.metadata` that was already checked, instead of unpickling it again."""

    def __init__(self, directory: Path, metadata: Metadata) -> None:
        super().__init__(directory)
        self._metadata = metadata

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        storage = self._metadata.storage_meta or StorageMeta()
        storage.load_id = self.load_id
        self._metadata.storage_meta = storage
        return self._metadata


class _InMemory(FileSystemBase):
    """The part of a file system that FileSystemWriter needs."""

    def __init__(self) -> None:
        self.streams: dict[str, BytesIO] = {}

    @contextmanager
    def create_stream(self, path: str | PathLike[str], mode: str) -> Iterator[Any]:
        stream = self.streams[fspath(path)] = _Kept()
        yield stream

    def concat_path(self, path: str | PathLike[str], suffix: str) -> str:
        return suffix

    def rename(self, path: str | PathLike[str], new_path: str | PathLike[str]) -> None:
        self.streams[fspath(new_path)] = self.streams.pop(fspath(path))

    def init_path(self, path: str | PathLike[str]) -> str | PathLike[str]:
        return path

    def mkdir(self, path: str | PathLike[str]) -> None:
        """There are no directories."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | PathLike[str]) -> bool:
        return True

    def exists(self, path: str | PathLike[str]) -> bool:
        return fspath(path) in self.streams

    def rm_file(self, path: str | PathLike[str]) -> None:
        del self.streams[fspath(path)]


class _Kept(BytesIO):
    def close(self) -> None:
        """Keep the bytes: the writer closes the file after writing, which would free them."""
