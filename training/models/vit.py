"""The vision transformer (Dosovitskiy and others: An Image is Worth 16x16 Words, 2020)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from training.models.transformer import Layer, Size

SIZES = {
    "vit-tiny": Size(layers=12, heads=3, width=192),
    "vit-small": Size(layers=12, heads=6, width=384),
    "vit-base": Size(layers=12, heads=12, width=768),
}
"""The first two as in Touvron and others: Training data-efficient image transformers, 2020."""

PATCHES = (16, 8, 4, 2)
PATCHES_A_SIDE = 4
"""The minimum number of patches along each side of an image."""


class ViT(nn.Module):
    """Images (n, channels, height, width) to logits (n, classes)."""

    def __init__(
        self, size: Size, shape: tuple[int, ...], classes: int, patch: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        channels, height, width = shape
        self.patches = nn.Conv2d(channels, size.width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, size.width))
        places = 1 + (height // patch) * (width // patch)
        self.places = nn.Parameter(torch.empty(1, places, size.width))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            Layer(size, dropout, causal=False, gelu="none", norm_epsilon=1e-6)
            for _ in range(size.layers)
        )
        self.norm = nn.LayerNorm(size.width, eps=1e-6)
        self.head = nn.Linear(size.width, classes)

        self.apply(start)
        inputs = channels * patch * patch
        nn.init.trunc_normal_(self.patches.weight, std=math.sqrt(1 / inputs))
        nn.init.normal_(self.places, std=0.02)
        nn.init.zeros_(self.head.weight)

    def blocks(self) -> Iterable[nn.Module]:
        return self.layers

    def before(self, images: Tensor) -> Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        states = torch.cat([self.class_token.expand(len(images), -1, -1), patches], dim=1)
        placed: Tensor = self.dropout(states + self.places)
        return placed

    def after(self, states: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(states)[:, 0])
        return logits

    def forward(self, images: Tensor) -> Tensor:
        states = self.before(images)
        for layer in self.layers:
            states = layer(states)
        return self.after(states)


def start(module: nn.Module) -> None:
    """The initial weights of the paper's code."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
    if isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None:
        nn.init.zeros_(module.bias)


def usual_patch(shape: tuple[int, ...]) -> int:
    """16 pixels a side, or fewer for a small image, so that it has four patches along each side."""
    _, height, width = shape
    for patch in PATCHES:
        if height % patch == width % patch == 0 and min(height, width) >= PATCHES_A_SIDE * patch:
            return patch
    return 1
