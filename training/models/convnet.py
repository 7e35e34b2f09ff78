"""A small convolutional network for small images."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn


class ConvNet(nn.Module):
    """Two blocks of two convolutions each, then a linear layer.

    No batch norm: it uses the statistics of a rank's own part of the batch, so that the result
    would depend on the number of ranks.
    """

    def __init__(
        self, shape: tuple[int, ...], classes: int, width: int = 64, dropout: float = 0.2
    ) -> None:
        super().__init__()
        channels, height, image_width = shape
        self.features = nn.Sequential(block(channels, width), block(width, 2 * width))
        features = 2 * width * (height // 4) * (image_width // 4)
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Dropout(dropout), nn.Linear(features, classes)
        )

    def blocks(self) -> Iterable[nn.Module]:
        return self.features

    def before(self, images: Tensor) -> Tensor:
        return images

    def after(self, features: Tensor) -> Tensor:
        logits: Tensor = self.classifier(features)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        return self.after(self.features(images))


def block(channels: int, width: int) -> nn.Sequential:
    """(n, channels, h, w) to (n, width, h/2, w/2)."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
