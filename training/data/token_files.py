"""Files of tokens in a folder or a bucket: one file, or all `.bin` files of a directory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyarrow.fs import FileSelector, FileType  # type: ignore[import-untyped]

from training.checkpoint.filesystem import absolute, is_address, located, reason, without_options
from training.data.examples import NoData

LOOKED_AT = 1 << 12
"""The number of tokens that are checked for values that suggest another type."""
CHUNK = 1 << 22
"""The number of tokens that are read at a time."""


@dataclass(frozen=True, slots=True)
class TokenFiles:
    """Tokens of one type, in files that follow each other by their names."""

    path: str
    """Of the file or directory: absolute, or an address."""
    files: tuple[str, ...]
    """On its file system."""
    counts: tuple[int, ...]
    """The tokens of each file."""
    type: str

    def __len__(self) -> int:
        return sum(self.counts)

    @property
    def shown(self) -> str:
        return without_options(self.path)

    def read(self, begin: int, count: int) -> NDArray[Any]:
        """Tokens from a position, across the borders of files. Raises NoData if a read fails."""
        pieces = [
            self._of_file(file, first, number) for file, first, number in self._places(begin, count)
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def chunks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """All tokens, with the position of each chunk's first."""
        for begin in range(0, len(self), CHUNK):
            yield begin, self.read(begin, min(CHUNK, len(self) - begin))

    def _places(self, begin: int, count: int) -> Iterator[tuple[str, int, int]]:
        """Of each file with a part: the first token in it, and their number."""
        for file, number, end in zip(self.files, self.counts, accumulate(self.counts), strict=True):
            first = begin - (end - number)
            if first < number and count:
                taken = min(count, number - first)
                yield file, first, taken
                begin, count = begin + taken, count - taken

    def _of_file(self, file: str, first: int, count: int) -> NDArray[Any]:
        if not is_address(self.path):
            # Map the file again for each read: a mapping keeps the pages that were read in memory.
            mapped = np.memmap(file, dtype=self.type, mode="r")
            return np.array(mapped[first : first + count])
        each = np.dtype(self.type).itemsize
        try:
            content = _opened(self.path, file).read_at(count * each, first * each)
        except OSError as error:
            raise NoData(f"{self.shown}: {reason(self.path, error)}") from None
        return np.frombuffer(content, dtype=self.type)


@cache
def _opened(path: str, file: str) -> Any:
    """Once in each process: opening an object is a request."""
    return located(path)[0].open_input_file(file)


def token_files(path: str, type: str) -> TokenFiles:
    """Raises NoData if there is none, or one cannot be of such tokens."""
    path = absolute(path)
    place = without_options(path)
    filesystem, at = located(path)
    try:
        info = filesystem.get_file_info(at)
        infos = [info]
        if info.type == FileType.Directory:
            there = filesystem.get_file_info(FileSelector(at))
            infos = [item for item in there if item.is_file and item.path.endswith(".bin")]
    except OSError as error:
        raise NoData(f"{place}: {reason(path, error)}") from None
    if info.type == FileType.NotFound:
        raise NoData(
            f"{place} is not there: a file of {type} tokens, seen by all ranks; "
            f"from a text: python -m training.data.tokens TEXT -o {place}"
        )
    if not infos:
        raise NoData(f"{place} has no files of tokens, whose names end with .bin")
    sizes = {item.path: item.size for item in sorted(infos, key=lambda item: item.path)}
    each = np.dtype(type).itemsize
    for file, size in sizes.items():
        if size % each:
            raise NoData(
                f"{_named(path, file)} has {size} bytes, which is no whole number of {type}: it "
                "was cut off on its way here, or is not a file of tokens"
            )
    counts = tuple(size // each for size in sizes.values())
    found = TokenFiles(path, tuple(sizes), counts, type)
    some = found.read(0, min(LOOKED_AT, len(found))) if len(found) else np.empty(0)
    if type == "uint16" and len(some) > 1 and some[::2].any() and not some[1::2].any():
        raise NoData(f"{place} holds uint32, not uint16, by its look: set token_type=uint32")
    return found


def _named(path: str, file: str) -> str:
    return f"s3://{file}" if path.startswith("s3://") else file
