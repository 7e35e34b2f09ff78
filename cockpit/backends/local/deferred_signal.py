"""Work that a signal may delay but not cut in half."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C and its like take effect at the end of the block, and are not lost.

    Signals that are ignored stay so. Python runs handlers in the main thread alone: elsewhere
    there is nothing to hold back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    held = {n: h for n, h in before.items() if h not in (signal.SIG_IGN, None)}
    for number in held:
        signal.signal(number, keep)
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])
