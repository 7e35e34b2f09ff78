"""CIFAR-10 and CIFAR-100 (Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009):
60,000 photographs of 32×32 pixels, in the files that torchvision reads and downloads.
"""

from __future__ import annotations

import errno
import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchvision.datasets import CIFAR10, CIFAR100
from torchvision.datasets.utils import check_integrity

from training.data.augment import mirror, normalized, shift
from training.data.example_random import Draws
from training.data.examples import Batch, Data, NoData

BORDER = 4
"""The maximum shift of an image in pixels, as in He and others: Deep Residual Learning for Image
Recognition, 2015, section 4.2.
"""


@dataclass(frozen=True, slots=True)
class Kind:
    dataset: Any
    classes: int
    mean: tuple[float, float, float]
    """Of the pixels (0 to 1) of the 50,000 training images, by channel; commonly used values."""
    deviation: tuple[float, float, float]


KINDS = {
    "cifar10": Kind(CIFAR10, 10, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": Kind(CIFAR100, 100, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


@dataclass(frozen=True, slots=True)
class Photographs:
    images: NDArray[np.uint8]
    """(n, 3, 32, 32)."""
    labels: NDArray[np.int64]
    kind: Kind

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, examples: NDArray[np.int64], draws: Draws | None) -> Batch:
        images = self.images[examples]
        if draws is not None:
            down, right = (draws.integers(examples, 2 * BORDER + 1, place) for place in (0, 1))
            images = shift(images, down, right, BORDER)
            images = mirror(images, draws.uniform(examples, 2) < 0.5)
        scaled = normalized(images, self.kind.mean, self.kind.deviation)
        return torch.from_numpy(scaled), torch.from_numpy(self.labels[examples])


def load(name: str, folder: Path, *, download: bool) -> Data:
    """Raises NoData if it is missing or incomplete, or could not be downloaded."""
    kind = KINDS[name]
    if download and wrong(kind, folder):
        fetch(name, folder)
    try:
        train, held_out = (kind.dataset(folder, train=part) for part in (True, False))
    except RuntimeError as error:  # its error does not describe the problem
        raise NoData(f"{name}: {wrong(kind, folder) or error}; {todo(kind, folder)}") from error
    return Data(
        name=name,
        train=photographs(train, kind),
        held_out=photographs(held_out, kind),
        shape=(3, 32, 32),
        classes=kind.classes,
    )


def photographs(dataset: Any, kind: Kind) -> Photographs:
    images = np.ascontiguousarray(dataset.data.transpose(0, 3, 1, 2))
    return Photographs(images, np.array(dataset.targets, dtype=np.int64), kind)


def wrong(kind: Kind, folder: Path) -> str:
    """What is wrong with the files; '' if all exist and their MD5 sums are right."""
    files = folder / kind.dataset.base_folder
    sums = dict([*kind.dataset.train_list, *kind.dataset.test_list])
    sums[kind.dataset.meta["filename"]] = kind.dataset.meta["md5"]
    if not files.is_dir():
        return f"{files.absolute()} is not there"
    missing = [name for name in sums if not (files / name).is_file()]
    if missing:
        return f"{files.absolute()} is half there: {', '.join(missing)} missing"
    damaged = [name for name, md5 in sums.items() if not check_integrity(files / name, md5)]
    if damaged:
        return f"{files.absolute()} is damaged: the MD5 of {', '.join(damaged)} differs"
    return ""


def todo(kind: Kind, folder: Path) -> str:
    return (
        f"set data_path to the folder that has {kind.dataset.base_folder}, or download=true, which "
        f"fetches it, or unpacks {folder.absolute() / kind.dataset.filename} if you put it there"
    )


def fetch(name: str, folder: Path) -> None:
    """Download into a separate folder, then move it in one step: no rank sees an incomplete one.

    One rank downloads and the others wait, if the file system supports locks; otherwise each
    downloads, and the last download is kept.
    """
    kind = KINDS[name]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / f".{name}.lock"):
            if not (why := wrong(kind, folder)):
                return
            print(f"{name}: {why}: fetching it", flush=True)
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as staged:
                archive = folder / kind.dataset.filename
                if check_integrity(archive, kind.dataset.tgz_md5):
                    (Path(staged) / archive.name).symlink_to(archive.absolute())
                kind.dataset(staged, download=True)
                place, fetched = (Path(at) / kind.dataset.base_folder for at in (folder, staged))
                replace(place, fetched, Path(staged) / "before")
    except (OSError, HTTPException, RuntimeError) as error:
        raise NoData(
            f"{name} could not be fetched from {kind.dataset.url} to {folder.absolute()}: {error}; "
            f"put the archive there by hand as {kind.dataset.filename}, and start again"
        ) from error


def replace(place: Path, fetched: Path, before: Path) -> None:
    """Move the download to its place; a damaged one there is replaced."""
    if place.exists():
        shutil.move(place, before)
    try:
        fetched.rename(place)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another rank was faster
            raise


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """A lock that one process holds at a time, and that is released if the process is killed."""
    with file.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
        except OSError as error:  # a file system without locks
            print(f"{file} cannot be locked: {error.strerror}", flush=True)
        yield
