"""Ending what follows a cluster by SIGTERM and Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ended_by_a_signal(end: Callable[[], None]) -> Iterator[None]:
    """Call `end` on SIGTERM and Ctrl-C.

    An exception could be raised while a lock is released, and the release would fail.
    """

    def handle(signum: int, frame: FrameType | None) -> None:
        end()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
