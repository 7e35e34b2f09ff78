"""Detect when a worker group has its placement group, for which Ray 2.60 has no hook."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

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
    wait = getattr(handle, "wait", None)
    if handle is not None and wait is not None and not hasattr(wait, "__wrapped__"):
        handle.wait = _telling(wait)


def _telling(wait: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(wait)
    def waited(*args: Any, **kwargs: Any) -> bool:
        is_there = wait(*args, **kwargs)
        if is_there and _listener is not None:
            _listener()
        return is_there

    return waited
