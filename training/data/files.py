"""The files of a data set in a folder or a bucket: one file, or those of a directory."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from pyarrow.fs import FileSelector, FileType  # type: ignore[import-untyped]

from training.checkpoint.filesystem import is_address, located, reason, without_options
from training.data.examples import NoData

READERS = 16
"""Requests to an object store at the same time: each of them waits for the network."""


def files(path: str, ending: str, what: str, if_missing: str) -> dict[str, int]:
    """The sizes in bytes of the file, or of all files of a directory whose names end with `ending`,
    in the order of their names.

    `what`: the kind of the files, for errors. Raises NoData if there are none.
    """
    place = without_options(path)
    filesystem, at = located(path)
    try:
        info = filesystem.get_file_info(at)
        infos = [info]
        if info.type == FileType.Directory:
            there = filesystem.get_file_info(FileSelector(at))
            infos = [item for item in there if item.is_file and item.path.endswith(ending)]
    except OSError as error:
        raise NoData(f"{place}: {reason(path, error)}") from None
    if info.type == FileType.NotFound:
        raise NoData(f"{place} is not there: {if_missing}")
    if not infos:
        raise NoData(f"{place} has no files of {what}, whose names end with {ending}")
    return {item.path: item.size for item in sorted(infos, key=lambda item: item.path)}


def named(path: str, file: str) -> str:
    """A file as users write it; `path`: the setting that it was found with."""
    return f"s3://{file}" if path.startswith("s3://") else file


@cache
def opened(path: str, file: str) -> Any:
    """Once in each process: opening an object is a request."""
    return located(path)[0].open_input_file(file)


def ranges(path: str, wanted: Sequence[tuple[str, int, int]]) -> list[bytes]:
    """The bytes of these ranges, of (file, offset, count). Raises NoData if a read fails."""

    def read(file: str, offset: int, count: int) -> bytes:
        content: bytes = opened(path, file).read_at(count, offset)
        return content

    try:
        if len(wanted) < 2 or not is_address(path):
            return [read(*each) for each in wanted]
        with ThreadPoolExecutor(READERS) as readers:
            return list(readers.map(lambda each: read(*each), wanted))
    except OSError as error:
        raise NoData(f"{without_options(path)}: {reason(path, error)}") from None
