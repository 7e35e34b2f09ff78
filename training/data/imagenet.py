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

from training.data.augment import Box, boxes, mirror, normalized
from training.data.example_random import Draws
from training.data.examples import Batch, Data, NoData

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's pixels (0 to 1), by channel, as torchvision's pretrained models expect."""
SHORTER = 256 / 224
"""For evaluation, the shorter side of an image before the crop, relative to the crop (Krizhevsky,
Sutskever, Hinton: ImageNet Classification with Deep Convolutional Neural Networks, 2012).
"""
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
        if draws is not None and pictures:
            sizes = np.array([picture.size for picture in pictures], dtype=np.int64)
            parts = boxes(examples, sizes, draws, 0)
            cut = [self._part(*both) for both in zip(pictures, parts, strict=True)]
        else:
            cut = [self._middle(picture) for picture in pictures]
        images = np.empty((len(cut), 3, self.height, self.width), dtype=np.uint8)
        for image, picture in zip(images, cut, strict=True):
            image[:] = np.asarray(picture).transpose(2, 0, 1)
        if draws is not None:
            images = mirror(images, draws.uniform(examples, 3) < 0.5)
        scaled = normalized(images, MEAN, DEVIATION)
        return torch.from_numpy(scaled), torch.from_numpy(self.labels[examples])

    def _part(self, picture: Image.Image, part: Box) -> Image.Image:
        return picture.resize((self.width, self.height), Image.Resampling.BILINEAR, box=part)

    def _middle(self, picture: Image.Image) -> Image.Image:
        """The center of the image, scaled so that a border is left around it."""
        larger = max(self.width / picture.width, self.height / picture.height) * SHORTER
        width, height = self.width / larger, self.height / larger
        left, top = (picture.width - width) / 2, (picture.height - height) / 2
        return picture.resize(
            (self.width, self.height),
            Image.Resampling.BILINEAR,
            box=(left, top, left + width, top + height),
        )


def read(file: Path) -> Image.Image:
    try:
        with Image.open(file) as picture:
            return picture.convert("RGB")
    # Pillow's error for a truncated or invalid image depends on its format.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
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
