"""Augmentations of images."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from training.data.example_random import Draws

Pixel = TypeVar("Pixel", np.uint8, np.float32)

AREA = (0.08, 1.0)
"""The permitted share of an image in a crop."""
RATIO = (3 / 4, 4 / 3)
"""The permitted ratio of its width to its height. Both as in Szegedy and others: Going deeper with
convolutions, 2014, and torchvision's RandomResizedCrop.
"""
TRIES = 10

Box = tuple[int, int, int, int]
"""Left, top, right and bottom, in pixels of the image."""


def shift(
    images: NDArray[Pixel], down: NDArray[np.int64], right: NDArray[np.int64], border: int
) -> NDArray[Pixel]:
    """Shift each image (n, c, h, w) within a black border: the crop, as large as the image, starts
    at the given row and column; `border` does not shift it.
    """
    n, channels, height, width = images.shape
    around = (border, border)
    padded: NDArray[Pixel] = np.pad(images, ((0, 0), (0, 0), around, around))
    rows = down[:, None] + np.arange(height)
    columns = right[:, None] + np.arange(width)
    moved: NDArray[Pixel] = padded[
        np.arange(n)[:, None, None, None],
        np.arange(channels)[None, :, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]
    return moved


def mirror(images: NDArray[Pixel], which: NDArray[np.bool_]) -> NDArray[Pixel]:
    """Mirror the selected images (n, c, h, w) horizontally."""
    return np.where(which[:, None, None, None], images[..., ::-1], images)


def boxes(
    examples: NDArray[np.int64], sizes: NDArray[np.int64], draws: Draws, place: int
) -> list[Box]:
    """A random crop of each image; `sizes` (n, 2) are their widths and heights.

    The first of ten tries that fits, or else the largest centered crop with a ratio within RATIO,
    as torchvision's RandomResizedCrop does.
    """
    low, high = np.log(RATIO)
    areas = AREA[0] + (AREA[1] - AREA[0]) * draws.many(examples, TRIES, place)
    ratios = np.exp(low + (high - low) * draws.many(examples, TRIES, place + 1))
    pixels = areas * sizes.prod(axis=1, keepdims=True)
    widths = np.rint(np.sqrt(pixels * ratios)).astype(np.int64)
    heights = np.rint(np.sqrt(pixels / ratios)).astype(np.int64)
    fits = (widths >= 1) & (widths <= sizes[:, :1]) & (heights >= 1) & (heights <= sizes[:, 1:])
    first = fits.argmax(axis=1)
    where = draws.many(examples, 2, place + 2)
    found: list[Box] = []
    for row, (width, height) in enumerate(sizes.tolist()):
        if not fits[row].any():
            found.append(_middle(width, height))
            continue
        own_width, own_height = int(widths[row, first[row]]), int(heights[row, first[row]])
        left = int(where[row, 0] * (width - own_width + 1))
        top = int(where[row, 1] * (height - own_height + 1))
        found.append((left, top, left + own_width, top + own_height))
    return found


def _middle(width: int, height: int) -> Box:
    own_width = min(width, round(height * RATIO[1]))
    own_height = min(height, round(width / RATIO[0]))
    left, top = (width - own_width) // 2, (height - own_height) // 2
    return left, top, left + own_width, top + own_height


def normalized(
    images: NDArray[np.uint8], mean: tuple[float, ...], deviation: tuple[float, ...]
) -> NDArray[np.float32]:
    """Normalise the channels of images (n, c, h, w) to mean 0 and deviation 1 over the data set.

    `mean` and `deviation` are of pixels from 0 to 1.
    """
    scale = (1 / (255 * np.array(deviation)))[:, None, None]
    offset = (np.array(mean) / np.array(deviation))[:, None, None]
    scaled = images.astype(np.float32)
    scaled *= scale.astype(np.float32)
    scaled -= offset.astype(np.float32)
    return scaled
