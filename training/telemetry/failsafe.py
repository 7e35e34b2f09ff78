"""Keep a failure of a telemetry hook out of the run."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def guarded(hook: Callable[P, T]) -> Callable[P, T | None]:
    """Wrap the hook: its first failure is logged with the traceback, later ones are ignored.

    A hook that fails returns None.
    """
    failed = False

    @functools.wraps(hook)
    def guard(*args: P.args, **kwargs: P.kwargs) -> T | None:
        nonlocal failed
        try:
            return hook(*args, **kwargs)
        except Exception:
            if not failed:
                name = f"{hook.__module__}.{hook.__qualname__}"
                log.warning("%s failed; the run continues", name, exc_info=True)
            failed = True
            return None

    return guard
