"""Lower precision: faster with hardware support, with weights kept in fp32."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

LOWER = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """fp16 has a small range: the loss is scaled up before the backward pass, so that small
    gradients are not lost, and a step whose gradients overflow is skipped (Micikevicius and others:
    Mixed Precision Training, 2018).
    """

    def __init__(
        self, name: str, device: torch.device, *, casts_itself: bool = False, in_parts: bool = False
    ) -> None:
        """`casts_itself`: the model's wrapper lowers the precision (FSDP2). `in_parts`: a rank has
        a part of the gradients, and all ranks must skip a step together.
        """
        self._device = device.type
        self._lower = None if casts_itself else LOWER.get(name)
        self.scaler = _scaler(in_parts)(self._device, enabled=name == "fp16")
        # TF32 rounds factors to 10 bits of mantissa, in fp32 tensors. Per process.
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = name == "tf32"

    @property
    def skips_steps(self) -> bool:
        return self.scaler.is_enabled()

    def autocast(self) -> AbstractContextManager[object]:
        """A context for the forward pass and the loss."""
        if self._lower is None:
            return nullcontext()
        return torch.autocast(self._device, dtype=self._lower)

    def backward(self, loss: Tensor) -> None:
        torch.autograd.backward(self.scaler.scale(loss))

    def unscale(self, optimizer: Optimizer) -> None:
        """Remove the scale from the gradients, before they are measured and clipped."""
        self.scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer) -> None:
        """The optimiser's step, unless a gradient overflowed."""
        self.scaler.step(optimizer)
        self.scaler.update()


def _scaler(in_parts: bool) -> type[GradScaler]:
    if not in_parts:
        return GradScaler
    # Importing torch.distributed.fsdp takes 0.6 s, so ranks without FSDP2 do not import it.
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    return ShardedGradScaler
