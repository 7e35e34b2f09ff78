"""The newest result of a read that may be slow, on a separate thread."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from training.telemetry.settings import PUSH_INTERVAL_S

log = logging.getLogger(__name__)

T = TypeVar("T")

STALE_AFTER_S = 5.0
"""Older values are not reported."""


class Watch(Generic[T]):
    """A faulty driver, or a collective that hangs, blocks only this thread."""

    def __init__(
        self, what: str, read: Callable[[], T], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what, self._read, self._clock = what, read, clock
        self._newest: tuple[float, T | None] = (-math.inf, None)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"telemetry-{what}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """The thread ends when its current read does."""
        self._end.set()

    def newest(self) -> T | None:
        """None before the first read, and if the last one is older than STALE_AFTER_S."""
        at, found = self._newest
        return found if self._clock() - at <= STALE_AFTER_S else None

    def read(self) -> None:
        found = self._read()
        self._newest = (self._clock(), found)

    def _run(self) -> None:
        while True:
            try:
                self.read()
            except Exception:
                log.warning("telemetry: %s: no longer read", self._what, exc_info=True)
                return
            if self._end.wait(PUSH_INTERVAL_S):
                return
