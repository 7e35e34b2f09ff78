"""A small convolutional network with batch norm, for images of any size."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn


class SimpleCNN(nn.Module):
    """Three blocks that each halve the image and widen it, a mean over the remaining pixels, and a
    linear layer.
    """

    def __init__(self, channels: int, classes: int, width: int = 64) -> None:
        super().__init__()
        self.features = nn.Sequential(
            block(channels, width), block(width, 2 * width), block(2 * width, 4 * width)
        )
        self.classifier = nn.Linear(4 * width, classes)

    def blocks(self) -> Iterable[nn.Module]:
        return self.features

    def before(self, images: Tensor) -> Tensor:
        return images

    def after(self, features: Tensor) -> Tensor:
        logits: Tensor = self.classifier(features.mean(dim=(2, 3)))
        return logits

    def forward(self, images: Tensor) -> Tensor:
        return self.after(self.features(images))


def block(channels: int, width: int) -> nn.Sequential:
    """(n, channels, h, w) to (n, width, h/2, w/2)."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1, bias=False),  # the norm has one
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
