"""Change a method or a function of Ray in this process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any


def wrap(owner: type | ModuleType, name: str, new: Callable[..., Any]) -> None:
    """Replace it by `new`, which is called with the old one first; once is enough."""
    old = getattr(owner, name)
    if hasattr(old, "__wrapped__"):
        return

    @functools.wraps(old)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return new(old, *args, **kwargs)

    setattr(owner, name, wrapped)
