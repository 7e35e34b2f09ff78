"""The kernel that computes attention."""

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
    """Restrict `scaled_dot_product_attention` to this kernel; `auto` leaves the choice to torch."""
    return nullcontext() if name == "auto" else sdpa_kernel(KERNELS[name])


def check(name: str, device: torch.device, precision: str, dropout: float) -> None:
    """Raises Stop if that kernel does not support such attention on this device, by a trial run."""
    if name == "auto":
        return
    able = [other for other in KERNELS if _computes(other, device, precision, dropout)]
    if name not in able:
        raise Stop(
            f"attention={name} does not compute {precision} with dropout={dropout:g} on a "
            f"{device.type} here: {', '.join(able)} can, and auto takes the best of them"
        )


def _computes(name: str, device: torch.device, precision: str, dropout: float) -> bool:
    """A head of size 64, as in most models, with its gradient."""
    with (
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        warnings.catch_warnings(),
        sdpa_kernel(KERNELS[name]),
    ):
        warnings.simplefilter("ignore")  # they report for each kernel why it was not used
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
