"""The blocks of a deep model, which are recomputed and sharded as units."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)

from training.models import blocks


def compute_again(model: nn.Module) -> None:
    """Keep no activations within a block: its forward pass is repeated in the backward pass.

    Uses the memory of one block instead of all, for about a third more time (Chen and others:
    Training Deep Nets with Sublinear Memory Cost, 2016). A state_dict keeps its names.
    """
    row = blocks(model)
    for module in (module for block in row for module in block.modules()):
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.register_forward_pre_hook(partial(move_once, momentum=module.momentum))
    own = set(map(id, row))
    apply_activation_checkpointing(model, check_fn=lambda module: id(module) in own)


def move_once(norm: nn.Module, _: Any, momentum: float | None) -> None:
    """A batch that batch norm processes again, in the backward pass, does not change its
    statistics.

    Compiled, none is processed twice: recomputation omits operations that change a buffer.
    """
    if not torch.compiler.is_compiling():
        again = torch._C._current_graph_task_id() != -1
        norm.momentum = 0.0 if again else momentum  # type: ignore[assignment]
