"""A multilayer perceptron."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from torch import Tensor, nn


class MLP(nn.Module):
    """The pixels through three hidden layers of equal width."""

    def __init__(
        self, shape: tuple[int, ...], classes: int, width: int = 64, dropout: float = 0.2
    ) -> None:
        super().__init__()
        self.hidden = nn.Sequential(
            layer(prod(shape), width, dropout),
            layer(width, width, dropout),
            layer(width, width, dropout),
        )
        self.classifier = nn.Linear(width, classes)

    def blocks(self) -> Iterable[nn.Module]:
        return self.hidden

    def before(self, images: Tensor) -> Tensor:
        return images.flatten(1)

    def after(self, units: Tensor) -> Tensor:
        logits: Tensor = self.classifier(units)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        return self.after(self.hidden(self.before(images)))


def layer(inputs: int, width: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(dropout))
