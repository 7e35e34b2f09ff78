"""A copy of a state, so that training can continue while the copy is written."""

from __future__ import annotations

from typing import Any

import torch


def snapshot(state: Any) -> Any:
    """Return the same dicts, lists and tuples, with every tensor copied into host memory.

    Other values are kept as they are: numbers and strings do not change. Tensors of a GPU are
    copied by its stream into pinned memory, with one wait for all of them.
    """
    copied = _copy(state)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.current_stream().synchronize()
    return copied


def _copy(state: Any) -> Any:
    if isinstance(state, torch.Tensor):
        return state.detach().to("cpu", non_blocking=True, copy=True)
    if isinstance(state, dict):
        return {key: _copy(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_copy(value) for value in state)
    return state
