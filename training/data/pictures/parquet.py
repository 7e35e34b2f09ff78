"""Parquet files with a column of encoded pictures and a column of labels, as those of Hugging Face.

A row cannot be read without its row group. The sampler therefore deals the row groups in a random
order, and the rows of several of them among each other; a few row groups stay in memory.
"""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray
from pyarrow import parquet

from training.checkpoint.filesystem import absolute, is_address, located, reason
from training.data.examples import NoData
from training.data.files import READERS, files, named

IN_MEMORY_BYTES = 256 << 20
"""Of the row groups that a process keeps, beside the newest."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    file: str
    number: int
    rows: int


@dataclass(frozen=True, slots=True)
class Rows:
    path: str
    """Of the file or directory: absolute, or an address."""
    groups: tuple[RowGroup, ...]
    column: str
    """Of the pictures."""
    labels: NDArray[np.int64]

    @property
    def chunks(self) -> tuple[int, ...]:
        return tuple(group.rows for group in self.groups)

    def contents(self, numbers: NDArray[np.int64]) -> list[bytes]:
        found = [b""] * len(numbers)
        ends = np.cumsum(self.chunks)
        of = np.searchsorted(ends, numbers, side="right")
        for each in np.unique(of):
            group = self.groups[each]
            wanted = np.flatnonzero(of == each)
            rows = numbers[wanted] - (ends[each] - group.rows)
            column = _pictures(self.path, group, self.column)
            for place, content in zip(wanted, column.take(pa.array(rows)), strict=True):
                if not content.is_valid:
                    raise NoData(f"{self.name(int(numbers[place]))} is null")
                found[place] = content.as_py()
        return found

    def name(self, number: int) -> str:
        for group, end in zip(self.groups, accumulate(self.chunks), strict=True):
            if number < end:
                row = number - (end - group.rows)
                file = named(self.path, group.file)
                return f"{file}: {self.column} in row {row} of row group {group.number}"
        raise IndexError(number)


def rows(path: str, image: str, label: str) -> Rows:
    """Read the footers and the labels. Raises NoData if a column is missing, or of another type."""
    path = absolute(path)
    found = files(path, ".parquet", "Parquet", "a Parquet file, or a directory of .parquet files")
    read = partial(_index, path, image=image or "image", label=label or "label")
    with ThreadPoolExecutor(READERS) as readers:
        indices = list(readers.map(read, found))
    groups = tuple(group for of_file, _ in indices for group in of_file)
    labels = np.concatenate([of_file for _, of_file in indices])
    return Rows(path, groups, image or "image", labels)


def _index(
    path: str, file: str, *, image: str, label: str
) -> tuple[list[RowGroup], NDArray[np.int64]]:
    place = named(path, file)
    try:
        opened = _opened(path, file)
        schema = opened.schema_arrow
        for name in (image, label):
            if name not in schema.names:
                raise NoData(
                    f"{place} has no column {name!r}; its columns are {', '.join(schema.names)}: "
                    "set image_column and label_column"
                )
        if not _is_binary(schema.field(image).type):
            raise NoData(
                f"{place}: column {image!r} is {schema.field(image).type}; it has to be the bytes "
                "of encoded pictures, or a struct with a field 'bytes'"
            )
        if not pa.types.is_integer(schema.field(label).type):
            raise NoData(f"{place}: column {label!r} is {schema.field(label).type}, not an integer")
        column = opened.read(columns=[label], use_threads=False).column(label)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, place, error) from None
    if column.null_count:
        raise NoData(f"{place}: column {label!r} has {column.null_count} null labels")
    labels = column.to_numpy().astype(np.int64)
    if len(labels) and labels.min() < 0:
        raise NoData(f"{place}: column {label!r} has the label {labels.min()}: they start at 0")
    metadata = opened.metadata
    groups = [
        RowGroup(file, number, metadata.row_group(number).num_rows)
        for number in range(metadata.num_row_groups)
    ]
    return groups, labels


@cache
def _opened(path: str, file: str) -> Any:
    """Once in each process, with its footer."""
    # Prefetching uses threads, which a forked loader process of a local file does not have.
    source = located(path)[0].open_input_file(file)
    return parquet.ParquetFile(source, pre_buffer=is_address(path))


_kept: OrderedDict[tuple[str, RowGroup, str], Any] = OrderedDict()


def _pictures(path: str, group: RowGroup, column: str) -> Any:
    """The column of a row group, as pyarrow's array of bytes; the last used ones stay in memory."""
    key = (path, group, column)
    if key in _kept:
        _kept.move_to_end(key)
        return _kept[key]
    place = named(path, group.file)
    try:
        opened = _opened(path, group.file)
        table = opened.read_row_group(group.number, columns=[column], use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, place, error) from None
    array = table.column(column).combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # combine_chunks keeps those above 2 GB apart
        raise NoData(f"{place}: row group {group.number} has over 2 GB: write smaller row groups")
    if pa.types.is_struct(array.type):
        array = array.field("bytes")
    _kept[key] = array
    while len(_kept) > 1 and sum(each.nbytes for each in _kept.values()) > IN_MEMORY_BYTES:
        _kept.popitem(last=False)
    return array


def _is_binary(of: Any) -> bool:
    if pa.types.is_struct(of):
        index = of.get_field_index("bytes")
        return index >= 0 and _is_binary(of.field(index).type)
    return bool(pa.types.is_binary(of) or pa.types.is_large_binary(of))


def _unreadable(path: str, place: str, error: Exception) -> NoData:
    if isinstance(error, OSError):
        return NoData(f"{place}: {reason(path, error)}")
    return NoData(f"{place} cannot be read as Parquet: {error}")
