"""Files of tokens in a folder or a bucket: one file, or all `.bin` files of a directory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.checkpoint.filesystem import absolute, is_address, without_options
from training.data.examples import NoData
from training.data.files import files, named, ranges

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
        (content,) = ranges(self.path, [(file, first * each, count * each)])
        return np.frombuffer(content, dtype=self.type)


def token_files(path: str, type: str) -> TokenFiles:
    """Raises NoData if there is none, or one cannot be of such tokens."""
    path = absolute(path)
    place = without_options(path)
    sizes = files(
        path,
        ".bin",
        "tokens",
        f"a file of {type} tokens, seen by all ranks; "
        f"from a text: python -m training.data.tokens TEXT -o {place}",
    )
    each = np.dtype(type).itemsize
    for file, size in sizes.items():
        if size % each:
            raise NoData(
                f"{named(path, file)} has {size} bytes, which is no whole number of {type}: it "
                "was cut off on its way here, or is not a file of tokens"
            )
    counts = tuple(size // each for size in sizes.values())
    found = TokenFiles(path, tuple(sizes), counts, type)
    some = found.read(0, min(LOOKED_AT, len(found))) if len(found) else np.empty(0)
    if type == "uint16" and len(some) > 1 and some[::2].any() and not some[1::2].any():
        raise NoData(f"{place} holds uint32, not uint16, by its look: set token_type=uint32")
    return found
