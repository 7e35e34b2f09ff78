"""The optimiser, with weight decay on weight matrices and none on biases and norms."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from training.techniques.settings import OptimizerSettings


def optimizer(parameters: Iterable[nn.Parameter], settings: OptimizerSettings) -> Optimizer:
    learnt = [parameter for parameter in parameters if parameter.requires_grad]
    matrices = [parameter for parameter in learnt if parameter.ndim >= 2]
    others = [parameter for parameter in learnt if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    rate, momentum = settings.learning_rate, settings.momentum
    fused = settings.fused or None  # False would make torch process one parameter after the other
    if settings.optimizer == "sgd":
        return SGD(groups, lr=rate, momentum=momentum, nesterov=momentum > 0, fused=fused)
    return AdamW(groups, lr=rate, betas=(momentum, 0.999), fused=fused)
