"""A time limit that does not count time in which this process was stopped."""

from __future__ import annotations

import time


class Countdown:
    """Of a wait in rounds: a process that was stopped, as by ctrl+z, has read nothing of the
    cluster in that time, and what it waits for may have happened.
    """

    def __init__(self, limit_s: float, round_s: float) -> None:
        """`round_s`: the longest time that a round can take without a stop."""
        self._left_s, self._round_s = limit_s, round_s
        self._began_s = time.monotonic()

    def left_s(self) -> float:
        """Call it once in each round. At 0 or below, the time is over."""
        now_s = time.monotonic()
        self._left_s -= min(now_s - self._began_s, self._round_s)
        self._began_s = now_s
        return self._left_s
