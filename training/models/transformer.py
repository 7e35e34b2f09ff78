"""The layer of GPT and ViT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Size:
    layers: int
    heads: int
    width: int
    """The size of the vector of a token or a patch."""


class Attention(nn.Module):
    """(n, t, width) to the same: each position attends to all, with `causal` to earlier ones."""

    def __init__(self, size: Size, dropout: float, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = size.heads, causal, dropout
        self.inputs = nn.Linear(size.width, 3 * size.width)
        """Queries, keys and values, in this order."""
        self.output = nn.Linear(size.width, size.width)

    def forward(self, states: Tensor) -> Tensor:
        n, t, width = states.shape
        parts = self.inputs(states).view(n, t, 3, self.heads, width // self.heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(
            queries,
            keys,
            values,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal,
        )
        mixed: Tensor = self.output(found.transpose(1, 2).reshape(n, t, width))
        return mixed


class Layer(nn.Module):
    """Attention, then a perceptron, each with a residual connection and after a norm."""

    def __init__(
        self,
        size: Size,
        dropout: float,
        *,
        causal: bool,
        gelu: Literal["none", "tanh"],
        norm_epsilon: float,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(size.width, eps=norm_epsilon)
        self.attention = Attention(size, dropout, causal=causal)
        self.attention_dropout = nn.Dropout(dropout)
        self.mlp_norm = nn.LayerNorm(size.width, eps=norm_epsilon)
        self.mlp = nn.Sequential(
            nn.Linear(size.width, 4 * size.width),
            nn.GELU(approximate=gelu),
            nn.Linear(4 * size.width, size.width),
            nn.Dropout(dropout),
        )

    def forward(self, states: Tensor) -> Tensor:
        states = states + self.attention_dropout(self.attention(self.attention_norm(states)))
        changed: Tensor = states + self.mlp(self.mlp_norm(states))
        return changed

    @property
    def adding(self) -> tuple[Tensor, Tensor]:
        """The weights of the residual branches."""
        last = self.mlp[2]
        assert isinstance(last, nn.Linear)
        return self.attention.output.weight, last.weight
