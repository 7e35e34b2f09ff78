"""WebDataset's shards: tar files with `KEY.jpg` and `KEY.cls`, one after the other.

An index of the headers is read at the start; after that, a picture is one request for its bytes,
so examples are dealt in a random order over all shards, and a run resumes at any of them.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.checkpoint.filesystem import absolute, reason
from training.data.examples import NoData
from training.data.files import READERS, files, named, opened, ranges

PICTURES = ("jpg", "jpeg", "png", "webp")
LABEL = "cls"
AHEAD_BYTES = 64 << 10
"""Read with each header: the label, and the headers and contents of small members after it."""


@dataclass(frozen=True, slots=True)
class Members:
    path: str
    """Of the file or directory: absolute, or an address."""
    shards: tuple[str, ...]
    places: NDArray[np.int64]
    """(n, 3): the index of the shard, the offset in it, and the bytes of each picture."""
    keys: NDArray[np.bytes_]
    """In an array: unlike a list, loader processes share its memory."""
    labels: NDArray[np.int64]

    @property
    def chunks(self) -> tuple[int, ...]:
        return ()

    def contents(self, numbers: NDArray[np.int64]) -> list[bytes]:
        wanted = [
            (self.shards[shard], offset, count)
            for shard, offset, count in self.places[numbers].tolist()
        ]
        return ranges(self.path, wanted)

    def name(self, number: int) -> str:
        shard = self.shards[int(self.places[number, 0])]
        return f"{named(self.path, shard)}: {self.keys[number].decode(errors='replace')}"


@dataclass(frozen=True, slots=True)
class _Picture:
    key: str
    offset: int
    count: int
    label: int


def members(path: str, image: str, label: str) -> Members:
    """Read the headers of all shards. Raises NoData if a sample lacks its picture or its label.

    `image`, `label`: the endings of their names; "": those of WebDataset's convention.
    """
    path = absolute(path)
    found = files(path, ".tar", "WebDataset", "a tar file, or a directory of .tar files")
    endings = (image.lower(),) if image else PICTURES
    read = partial(_index, path, endings=endings, label=label.lower() or LABEL)
    with ThreadPoolExecutor(READERS) as readers:
        indices = list(readers.map(read, found))
    pictures = [(shard, each) for shard, of_shard in enumerate(indices) for each in of_shard]
    places = [(shard, each.offset, each.count) for shard, each in pictures]
    return Members(
        path,
        tuple(found),
        np.array(places, dtype=np.int64).reshape(-1, 3),
        np.array([each.key.encode() for _, each in pictures]),
        np.array([each.label for _, each in pictures], dtype=np.int64),
    )


def _index(path: str, shard: str, *, endings: tuple[str, ...], label: str) -> list[_Picture]:
    place = named(path, shard)
    found: list[_Picture] = []
    try:
        buffered = io.BufferedReader(opened(path, shard), AHEAD_BYTES)
        buffered.seek(0)
        with tarfile.open(fileobj=buffered, mode="r:") as tar:
            for key, named_so in groupby(_named_members(tar), lambda item: item[0]):
                of_key = {ending: member for _, ending, member in named_so}
                found.append(_sample(tar, f"{place}: sample {key}", key, of_key, endings, label))
        buffered.detach()  # it stays open for the pictures
    except tarfile.TarError as error:
        raise NoData(f"{place} cannot be read as an uncompressed tar file: {error}") from None
    except OSError as error:
        raise NoData(f"{place}: {reason(path, error)}") from None
    return found


def _named_members(tar: tarfile.TarFile) -> Iterator[tuple[str, str, tarfile.TarInfo]]:
    """Key, ending and member. The key ends at the first dot of the file's name."""
    for member in tar:
        folder, slash, file = member.name.rpartition("/")
        key, _, ending = file.partition(".")
        if member.isfile() and ending and not file.startswith("."):
            yield f"{folder}{slash}{key}", ending.lower(), member


def _sample(
    tar: tarfile.TarFile,
    place: str,
    key: str,
    of_key: dict[str, tarfile.TarInfo],
    endings: tuple[str, ...],
    label: str,
) -> _Picture:
    picture = next((ending for ending in endings if ending in of_key), "")
    for missing in [*([] if picture else ["/".join(endings)]), *({label} - of_key.keys())]:
        raise NoData(
            f"{place} has no member {missing}; it has {', '.join(of_key)}: set image_column and "
            "label_column to their endings"
        )
    text: Any = tar.extractfile(of_key[label])
    content = text.read(AHEAD_BYTES).decode(errors="replace").strip()
    if not content.isdecimal():
        raise NoData(f"{place}: its {label} is {content[:40]!r}, not a number from 0")
    member = of_key[picture]
    return _Picture(f"{key}.{picture}", member.offset_data, member.size, int(content))
