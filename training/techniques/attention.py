"""Which kernel computes attention."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from training.stop import Stop
from training.techniques.precision import LOWER

KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


def kernel(name: str) -> AbstractContextManager[object]:
    """The only one that `scaled_dot_product_attention` may take; `auto` leaves it to torch."""
    return nullcontext() if name == "auto" else sdpa_kernel(KERNELS[name])


def check(name: str, device: torch.device, precision: str, dropout: float) -> None:
    """Raises Stop when that kernel cannot compute such attention on this device: it is tried."""
    if name == "auto":
        return
    able = [other for other in KERNELS if _computes(other, device, precision, dropout)]
    if name not in able:
        raise Stop(
            f"attention={name} does not compute {precision} with dropout={dropout:g} on a "
            f"{device.type} here: {', '.join(able)} can, and auto takes the best of them"
        )


def _computes(name: str, device: torch.device, precision: str, dropout: float) -> bool:
    """A head of 64 numbers, as most models have, with its gradient."""
    with (
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        warnings.catch_warnings(),
        sdpa_kernel(KERNELS[name]),
    ):
        warnings.simplefilter("ignore")  # they say which kernel did not do, one by one
        made = torch.ones(
            1, 1, 16, 64, device=device, dtype=LOWER.get(precision), requires_grad=True
        )
        try:
            found = scaled_dot_product_attention(
                made, made, made, dropout_p=dropout, is_causal=True
            )
            torch.autograd.backward(found.sum())
        except RuntimeError:
            return False
    return True
