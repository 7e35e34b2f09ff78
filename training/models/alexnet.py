"""AlexNet in the size for CIFAR."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

LEFT = 2
"""Pixels a side at the classifier; an image of 32 pixels ends with as many."""


class AlexNet(nn.Module):
    """Five convolutions and three linear layers (Krizhevsky, Sutskever, Hinton: ImageNet
    Classification with Deep Convolutional Neural Networks, 2012), with the widths of the same
    author's One weird trick for parallelizing convolutional neural networks, 2014.

    The first convolution has kernels of 3 and stride 2, instead of 11 and 4, and the pools are of
    2: otherwise nothing would be left of an image of 32 pixels. Larger images are pooled down to
    the same size.
    """

    def __init__(self, channels: int, classes: int, dropout: float = 0.5) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Sequential(
                nn.Conv2d(channels, 64, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2)
            ),
            nn.Sequential(nn.Conv2d(64, 192, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            nn.Sequential(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU()),
            nn.Sequential(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU()),
            nn.Sequential(
                nn.Conv2d(256, 256, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.AdaptiveAvgPool2d(LEFT),
                nn.Flatten(),
            ),
        )
        self.hidden = nn.Sequential(
            nn.Sequential(nn.Dropout(dropout), nn.Linear(256 * LEFT * LEFT, 4096), nn.ReLU()),
            nn.Sequential(nn.Dropout(dropout), nn.Linear(4096, 4096), nn.ReLU()),
        )
        self.classifier = nn.Linear(4096, classes)

    def blocks(self) -> Iterable[nn.Module]:
        return [*self.features, *self.hidden]

    def before(self, images: Tensor) -> Tensor:
        return images

    def after(self, units: Tensor) -> Tensor:
        logits: Tensor = self.classifier(units)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        return self.after(self.hidden(self.features(images)))
