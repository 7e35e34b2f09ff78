"""1,797 handwritten digits of 8×8 pixels, included so that a job needs no network.

The test set of UCI's "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, 1998, CC
BY 4.0), which scikit-learn provides as `load_digits`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from training.data.augment import shift
from training.data.example_random import Draws
from training.data.examples import Batch, Data, NoData

FILE = Path(__file__).with_name("digits.npz")
SHA256 = "b2dab7b501728c22e9119ad76740b2e17c77a231e42d1e592380d90886f1a05e"
HELD_OUT = 360


@dataclass(frozen=True, slots=True)
class Digits:
    images: NDArray[np.float32]
    """(n, 1, 8, 8), 0 to 1."""
    labels: NDArray[np.int64]
    """(n,), 0 to 9."""

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, examples: NDArray[np.int64], draws: Draws | None) -> Batch:
        images = self.images[examples]
        if draws is not None:
            # Shift by -1 to 1 pixels in both directions; 1 does not shift.
            images = shift(
                images, draws.integers(examples, 3, 0), draws.integers(examples, 3, 1), border=1
            )
        return torch.from_numpy(images), torch.from_numpy(self.labels[examples])


def load() -> Data:
    """The digits, always split in the same way.

    Raises NoData if the file is not the one of this version.
    """
    images, labels = read(FILE)
    order = np.random.default_rng(0).permutation(len(labels))
    held_out, train = order[:HELD_OUT], order[HELD_OUT:]
    scaled = np.divide(images, 16, dtype=np.float32)[:, None]
    return Data(
        name="digits",
        train=Digits(scaled[train], labels[train].astype(np.int64)),
        held_out=Digits(scaled[held_out], labels[held_out].astype(np.int64)),
        shape=(1, 8, 8),
        classes=10,
    )


def read(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (n, 8, 8) of 0 to 16 and labels (n,)."""
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != SHA256:
        raise NoData(f"{file} is damaged: its SHA-256 is {found}, not {SHA256}")
    with np.load(file, allow_pickle=False) as arrays:
        return arrays["images"], arrays["labels"]
