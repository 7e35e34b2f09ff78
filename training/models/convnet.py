"""A small convolutional network for small grey images."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ConvNet(nn.Module):
    """Two blocks of convolutions, then a linear layer: (n, 1, 8, 8) to (n, 10) logits.

    No batch norm: its running statistics would differ from rank to rank, and the evaluation of
    one rank would not be that of another.
    """

    def __init__(self, width: int = 64, classes: int = 10, dropout: float = 0.2) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Dropout(dropout), nn.Linear(2 * width * 4, classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(images))
        return logits


def shift(images: Tensor) -> Tensor:
    """Each image moved by up to a pixel in both directions, filled with black.

    Draws from torch's global generator, which a checkpoint holds.
    """
    n, _, height, width = images.shape
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    down, right = torch.randint(0, 3, (2, n, 1, 1))
    rows = down + torch.arange(height)[None, :, None]
    columns = right + torch.arange(width)[None, None, :]
    return padded[torch.arange(n)[:, None, None], 0, rows, columns][:, None]
