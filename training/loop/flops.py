"""Count the FLOPs of a model, operation by operation."""

from __future__ import annotations

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from training.data.examples import Batch


def flops(model: nn.Module, batch: Batch) -> float:
    """The FLOPs of a forward and a backward pass over an example of the batch.

    Only shapes are processed, nothing is computed: it takes milliseconds, uses no random generator
    and leaves no gradients.
    """
    from torch.utils.flop_counter import FlopCounterMode  # imports triton: 0.3 s

    inputs, _ = batch
    shapes = {
        name: parameter.detach().to("meta").requires_grad_(parameter.requires_grad)
        for name, parameter in model.named_parameters()
    }
    shapes |= {name: buffer.to("meta") for name, buffer in model.named_buffers()}
    model.eval()
    # The fast kernels compute the scores again in the backward pass, which torch counts as well
    # (torch 2.15, utils/flop_counter.py); the model does not need it.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        answers = functional_call(model, shapes, (inputs.to("meta"),))
        torch.autograd.backward(answers.float().sum())
    model.train()
    return float(counter.get_total_flops()) / len(inputs)
