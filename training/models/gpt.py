"""GPT-2 (Radford and others: Language Models are Unsupervised Multitask Learners, 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from training.models.transformer import Layer, Size

SIZES = {
    "gpt-tiny": Size(layers=2, heads=2, width=64),
    "gpt-mini": Size(layers=4, heads=4, width=128),
    "gpt-small": Size(layers=6, heads=6, width=384),
    "gpt-124m": Size(layers=12, heads=12, width=768),
}
"""The last is GPT-2 small: with its 50,257 tokens and 1,024 places, 124,439,808 parameters."""


class GPT(nn.Module):
    """Tokens (n, t) to logits (n, t, vocabulary) of the token after each of them."""

    def __init__(
        self, size: Size, places: int, vocabulary: int, dropout: float = 0.0, *, tied: bool = True
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, size.width)
        self.places = nn.Embedding(places, size.width)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            Layer(size, dropout, causal=True, gelu="tanh", norm_epsilon=1e-5)
            for _ in range(size.layers)
        )
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight
        self.apply(start)
        for layer in self.layers:
            assert isinstance(layer, Layer)
            for weight in layer.adding:
                # Scaled by the number of sums, so that the states keep their size (section 2.3 of
                # the paper).
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * size.layers))

    def blocks(self) -> Iterable[nn.Module]:
        return self.layers

    def before(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        states: Tensor = self.dropout(self.tokens(tokens) + self.places(places))
        return states

    def after(self, states: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(states))
        return logits

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.before(tokens)
        for layer in self.layers:
            states = layer(states)
        return self.after(states)


def start(module: nn.Module) -> None:
    """GPT-2's initial weights: N(0, 0.02²), biases 0."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
