"""The norm of a gradient that is distributed over the ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.utils import get_total_norm


@torch.no_grad()
def clip(
    gradients: Sequence[Tensor],
    longest: float,
    device: torch.device,
    group: dist.ProcessGroup | None = None,
    counted_elsewhere: Sequence[Tensor] = (),
) -> Tensor:
    """The norm over all ranks' gradients, which are clipped to `longest`; 0 does not clip.

    `counted_elsewhere` are clipped too, and counted by another rank.
    """
    length = get_total_norm(gradients).to(device) if gradients else torch.zeros((), device=device)
    squared = length.double().square()
    dist.all_reduce(squared, group=group)
    whole = squared.sqrt().float()
    own = [*gradients, *counted_elsewhere]
    if longest and own:
        # As torch.nn.utils.clip_grads_with_norm_ does it.
        factor = (longest / (whole + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(own, factor.to(own[0].device))
    return whole
