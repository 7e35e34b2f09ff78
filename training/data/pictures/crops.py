"""Decoded pictures, cropped to the shape of an example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from training.data.augment import boxes, mirror, normalized
from training.data.example_random import Draws
from training.data.examples import NoData

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's pixels (0 to 1), by channel, as torchvision's pretrained models expect."""
SHORTER = 256 / 224
"""For evaluation, the shorter side of an image before the crop, relative to the crop (Krizhevsky,
Sutskever, Hinton: ImageNet Classification with Deep Convolutional Neural Networks, 2012).
"""


def decoded(content: IO[bytes], name: str) -> Image.Image:
    """Raises NoData with the name of a picture that cannot be decoded."""
    try:
        with Image.open(content) as picture:
            return picture.convert("RGB")
    # Pillow's error for a truncated or invalid image depends on its format.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        unknown = isinstance(error, UnidentifiedImageError)  # whose text has an address of memory
        why = "cannot identify image file" if unknown else error
        raise NoData(f"{name} cannot be read as a picture: {why}; fetch it again") from error


def cropped(
    pictures: Sequence[Image.Image],
    examples: NDArray[np.int64],
    draws: Draws | None,
    height: int,
    width: int,
) -> Tensor:
    """A random crop of each picture, possibly mirrored; without draws its center: (n, 3, h, w).

    `examples`: their numbers, which the draws depend on.
    """
    if draws is not None and pictures:
        sizes = np.array([picture.size for picture in pictures], dtype=np.int64)
        parts = boxes(examples, sizes, draws, 0)
        cut = [
            picture.resize((width, height), Image.Resampling.BILINEAR, box=part)
            for picture, part in zip(pictures, parts, strict=True)
        ]
    else:
        cut = [_middle(picture, height, width) for picture in pictures]
    images = np.empty((len(cut), 3, height, width), dtype=np.uint8)
    for image, picture in zip(images, cut, strict=True):
        image[:] = np.asarray(picture).transpose(2, 0, 1)
    if draws is not None:
        images = mirror(images, draws.uniform(examples, 3) < 0.5)
    return torch.from_numpy(normalized(images, MEAN, DEVIATION))


def _middle(picture: Image.Image, height: int, width: int) -> Image.Image:
    """The center of the picture, scaled so that a border is left around it."""
    larger = max(width / picture.width, height / picture.height) * SHORTER
    inner_width, inner_height = width / larger, height / larger
    left, top = (picture.width - inner_width) / 2, (picture.height - inner_height) / 2
    return picture.resize(
        (width, height),
        Image.Resampling.BILINEAR,
        box=(left, top, left + inner_width, top + inner_height),
    )
