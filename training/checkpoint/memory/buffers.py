"""Copies of a model's buffers, which its next forward pass changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor, nn


class BufferCopies:
    """Such as the statistics of batch norm. The copies are made in the same memory each time, with
    one call for each type: a call for each of many small tensors takes longer than the copy.
    """

    def __init__(self, model: nn.Module) -> None:
        self._copies: dict[int, Tensor] = {}
        by_type: defaultdict[object, tuple[list[Tensor], list[Tensor]]]
        by_type = defaultdict(lambda: ([], []))
        for buffer in model.buffers():
            if buffer.numel():
                copy = self._copies[buffer.data_ptr()] = buffer.detach().clone()
                copies, buffers = by_type[buffer.device, buffer.dtype]
                copies.append(copy)
                buffers.append(buffer.detach())
        self._calls = list(by_type.values())

    def copied(self) -> Mapping[int, Tensor]:
        """By address (`data_ptr`) of a buffer, its copy, which the next call replaces."""
        for copies, buffers in self._calls:
            torch._foreach_copy_(copies, buffers)
        return self._copies
