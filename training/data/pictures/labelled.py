"""Pictures with labels by number, from any format of files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from training.checkpoint.filesystem import without_options
from training.data.example_random import Draws
from training.data.examples import Batch, Data, NoData
from training.data.pictures.crops import cropped, decoded
from training.data.settings import DataSettings

HELD_OUT = 10
"""The share of pictures that are held out, if there are no other files for evaluation."""


class Files(Protocol):
    """The encoded pictures of one format. Sent to the tasks of Ray Data: without open files."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """By number."""
        ...

    @property
    def chunks(self) -> tuple[int, ...]:
        """Numbers of consecutive pictures that are read together; (): each by itself."""
        ...

    def contents(self, numbers: NDArray[np.int64]) -> list[bytes]:
        """These pictures, in this order. Raises NoData if they cannot be read."""
        ...

    def name(self, number: int) -> str:
        """A picture in an error."""
        ...


@dataclass(frozen=True, slots=True)
class Labelled:
    files: Files
    first: int
    count: int
    height: int
    width: int

    def __len__(self) -> int:
        return self.count

    def batch(self, examples: NDArray[np.int64], draws: Draws | None) -> Batch:
        numbers = self.first + examples
        contents = self.files.contents(numbers)
        pictures = [
            decoded(BytesIO(content), self.files.name(int(number)))
            for content, number in zip(contents, numbers, strict=True)
        ]
        images = cropped(pictures, examples, draws, self.height, self.width)
        return images, torch.from_numpy(self.files.labels[numbers])


def load(
    settings: DataSettings, shape: tuple[int, int, int], opened: Callable[[str], Files]
) -> Data:
    """`opened` reads the index of a file or directory."""
    channels, height, width = shape
    if channels != 3:
        raise NoData(f"pictures have 3 channels, and shape asks for {channels}")
    if not settings.data_path:
        raise NoData(
            f"data={settings.data} needs data_path: a file or a directory, such as s3://BUCKET/PATH"
        )
    place = without_options(settings.data_path).rstrip("/")
    files = held_out_files = opened(settings.data_path)
    count = len(files.labels)
    if settings.held_out_path:
        held_out_files = opened(settings.held_out_path)
        first, held_out_count = 0, len(held_out_files.labels)
    else:
        held_out_count = count // HELD_OUT
        count -= held_out_count
        first = count
    if not count or not held_out_count:
        raise NoData(f"{place} has {len(files.labels)} pictures, too few to train and to evaluate")
    return Data(
        name=f"pictures of {place.rpartition('/')[2]}",
        train=Labelled(files, 0, count, height, width),
        held_out=Labelled(held_out_files, first, held_out_count, height, width),
        shape=shape,
        classes=int(max(files.labels.max(), held_out_files.labels.max())) + 1,
        chunks=_first(files.chunks, count),
    )


def _first(chunks: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The chunks of the first `count` pictures."""
    if not chunks:
        return ()
    ends = np.minimum(np.cumsum(chunks), count)
    return tuple(int(size) for size in np.diff(ends, prepend=0) if size)
