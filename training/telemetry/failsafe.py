"""What keeps a failure of a hook of ours out of the run."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec

log = logging.getLogger(__name__)

P = ParamSpec("P")


def guarded(hook: Callable[P, None]) -> Callable[P, None]:
    """The hook, which logs its first failure with the traceback and is silent from then on."""
    failed = False

    @functools.wraps(hook)
    def guard(*args: P.args, **kwargs: P.kwargs) -> None:
        nonlocal failed
        try:
            hook(*args, **kwargs)
        except Exception:
            if not failed:
                name = f"{hook.__module__}.{hook.__qualname__}"
                log.warning("%s failed; the run continues", name, exc_info=True)
            failed = True

    return guard
