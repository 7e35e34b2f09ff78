"""A time limit that does not count time in which this process was stopped."""

from __future__ import annotations

import time


class Countdown:
    """Of a wait: a process that was stopped, as by ctrl+z, has read nothing of the cluster in that
    time, and what it waits for may have happened.
    """

    def __init__(self, limit_s: float) -> None:
        self._left_s, self._since_s = limit_s, time.monotonic()

    def left_s(self, longest_s: float) -> float:
        """At 0 or below, the time is over.

        `longest_s`: what has happened since the last call takes so long at most, without a stop.
        """
        now_s = time.monotonic()
        self._left_s -= min(now_s - self._since_s, longest_s)
        self._since_s = now_s
        return self._left_s
