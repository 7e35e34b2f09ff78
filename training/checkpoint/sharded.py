"""Tensors of which each rank has a part, in files that any number of ranks can load.

The files are those of torch.distributed.checkpoint: one a rank, and `.metadata`, which says where
each part of each tensor lies. So `torch.distributed.checkpoint.load` of the directory reads them
without this code. `.metadata` is a pickle: it is read only from a checkpoint of one's own.
"""

from __future__ import annotations

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
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

METADATA = ".metadata"


def save(tensors: Mapping[str, Tensor]) -> dict[str, memoryview]:
    """This rank's files by name, complete and in memory; every rank has to take part.

    Nothing waits on a disk, and a rank that is killed leaves nothing behind. A tensor that several
    ranks have whole is in the file of one of them.
    """
    files = _InMemory()
    writer = FileSystemWriter("", sync_files=False)
    writer.fs = files  # type: ignore[assignment]  # typed as the one for disks
    state_dict_saver.save(dict(tensors), storage_writer=writer)
    return {name: stream.getbuffer() for name, stream in files.streams.items()}


def saved(directory: Path) -> dict[str, TensorStorageMetadata]:
    """What the checkpoint has, by name: `size` and `properties.dtype` of each."""
    metadata = FileSystemReader(directory).read_metadata()
    return {
        name: found
        for name, found in metadata.state_dict_metadata.items()
        if isinstance(found, TensorStorageMetadata)
    }


def load(directory: Path, tensors: Mapping[str, Tensor]) -> None:
    """Fill the tensors, of each its part that this rank has; each rank does so by itself.

    Raises CheckpointException when one is not in the checkpoint.
    """
    with torch.no_grad(), warnings.catch_warnings():
        # It takes `no_dist` for an oversight.
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        state_dict_loader.load(
            dict(tensors), storage_reader=FileSystemReader(directory), no_dist=True
        )


class _InMemory(FileSystemBase):
    """As much of a file system as FileSystemWriter asks for."""

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
        """The writer closes what it has written, and then its bytes would be gone."""
