"""Detect when a worker group has its placement group, for which Ray 2.60 has no hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from training.patch import wrap

_listener: Callable[[], None] | None = None


def listen(listener: Callable[[], None] | None) -> None:
    """Call `listener` whenever Ray Train's wait for a placement group succeeds.

    If Ray no longer has such a wait, it is not called, and the phase stays unknown.
    """
    global _listener
    _listener = listener
    if listener is None:
        return
    from ray.train.v2._internal.execution.worker_group import placement_group_handle

    handle = getattr(placement_group_handle, "DefaultPlacementGroupHandle", None)
    if handle is not None and hasattr(handle, "wait"):
        wrap(handle, "wait", _wait)


def _wait(old: Callable[..., bool], *args: Any, **kwargs: Any) -> bool:
    is_there = old(*args, **kwargs)
    if is_there and _listener is not None:
        _listener()
    return is_there
