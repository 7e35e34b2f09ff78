"""Gather tensors that are distributed over ranks, and distribute them again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


@torch.no_grad()
def gather(state: Any, device: torch.device, *, keep: bool) -> Any:
    """The same dicts and lists with whole tensors on the CPU, one after the other, on the ranks
    that keep them; call on every rank. `device` is the one from which ranks exchange tensors.
    """
    if isinstance(state, dict):
        made = {key: gather(value, device, keep=keep) for key, value in state.items()}
        return made if keep else {}
    if isinstance(state, list):
        return [gather(value, device, keep=keep) for value in state]
    if isinstance(state, DTensor):
        own = state.to_local().detach().to(device)
        there = DTensor.from_local(
            own, state.device_mesh, state.placements, shape=state.shape, stride=state.stride()
        )
        whole = there.full_tensor()
        return whole.cpu() if keep else None
    return state


@torch.no_grad()
def part(whole: Tensor, like: Tensor) -> Tensor:
    """This rank's part of a tensor that every rank has as a whole, distributed like `like`; a
    tensor of another shape, such as an optimiser's step count, is not split.
    """
    if not isinstance(like, DTensor) or whole.shape != like.shape:
        return whole
    made = torch.empty_like(like.detach(), dtype=whole.dtype)
    fill(made, whole)
    return made


@torch.no_grad()
def fill(own: Tensor, whole: Tensor) -> None:
    if not isinstance(own, DTensor):
        own.copy_(whole)
        return
    # Without a source nothing is sent.
    spread = distribute_tensor(whole, own.device_mesh, own.placements, src_data_rank=None)
    own.to_local().copy_(spread.to_local())
