"""Folders of images in ImageNet's layout: train/CLASS/*.JPEG and val/CLASS/*.JPEG."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torchvision.datasets.folder import IMG_EXTENSIONS, find_classes, make_dataset

from training.data.example_random import Draws
from training.data.examples import Batch, Data, NoData
from training.data.pictures.crops import cropped, decoded

NAMED = 3
"""The number of classes that an error lists."""


@dataclass(frozen=True, slots=True)
class Pictures:
    files: NDArray[np.bytes_]
    """Their paths, in an array: unlike a list, loader processes share its memory."""
    labels: NDArray[np.int64]
    height: int
    width: int

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, examples: NDArray[np.int64], draws: Draws | None) -> Batch:
        """A random crop of each image, possibly mirrored; without draws its center.

        Raises NoData with the name of the file that cannot be read.
        """
        pictures = [read(Path(os.fsdecode(file))) for file in self.files[examples]]
        images = cropped(pictures, examples, draws, self.height, self.width)
        return images, torch.from_numpy(self.labels[examples])


def read(file: Path) -> Image.Image:
    try:
        with file.open("rb") as content:
            return decoded(content, str(file))
    except OSError as error:
        raise NoData(f"{file} cannot be read as a picture: {error}; fetch it again") from error


def load(folder: Path, shape: tuple[int, int, int]) -> Data:
    """Raises NoData if the folders are missing, or have different classes."""
    channels, height, width = shape
    if channels != 3:
        raise NoData(f"imagenet's pictures have 3 channels, and shape asks for {channels}")
    classes = {part: classes_in(folder / part) for part in ("train", "val")}
    for one, other in (("train", "val"), ("val", "train")):
        only = sorted(set(classes[one]) - set(classes[other]))
        if only:
            raise NoData(
                f"{folder.absolute()} is half there: {named(only)} in {one} and not in {other}; "
                "both need a folder for each class"
            )
    parts = {part: pictures(folder / part, height, width) for part in classes}
    return Data(
        name="imagenet",
        train=parts["train"],
        held_out=parts["val"],
        shape=shape,
        classes=len(classes["train"]),
    )


def classes_in(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise NoData(
            f"{folder.absolute()} is not there: data_path is a folder with train/CLASS/*.JPEG and "
            "val/CLASS/*.JPEG; ImageNet is not fetched, since image-net.org asks for an account"
        )
    try:
        classes: list[str] = find_classes(folder)[0]
    except FileNotFoundError as error:
        flat = sum(file.suffix.lower() in IMG_EXTENSIONS for file in folder.iterdir())
        lies = f"{flat} pictures lie in it" if flat else "it is empty"
        raise NoData(
            f"{folder.absolute()} has no folders of classes, and {lies}: unpack the archive, and "
            "sort its pictures into a folder for each class"
        ) from error
    return classes


def pictures(folder: Path, height: int, width: int) -> Pictures:
    try:
        found = make_dataset(folder, extensions=IMG_EXTENSIONS)
    except FileNotFoundError as error:
        empty = [
            part.name
            for part in sorted(folder.iterdir())
            if part.is_dir()
            and not any(file.suffix.lower() in IMG_EXTENSIONS for file in part.rglob("*"))
        ]
        raise NoData(
            f"{folder.absolute()} is half there: {named(empty)} without a picture; "
            "unpack the archive again"
        ) from error
    files, labels = zip(*found, strict=True)
    paths = np.array([os.fsencode(file) for file in files])
    return Pictures(paths, np.array(labels, dtype=np.int64), height, width)


def named(classes: list[str]) -> str:
    more = f" and {len(classes) - NAMED} more" if len(classes) > NAMED else ""
    kind = "class" if len(classes) == 1 else "classes"
    return f"{kind} {', '.join(classes[:NAMED])}{more}"
