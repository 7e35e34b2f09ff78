"""How long to wait before trying again."""

from __future__ import annotations

import random


class Backoff:
    """Exponential backoff from `first_s` to `most_s`; each wait is 50–100 % of that.

    The jitter keeps many cockpits from reconnecting to a restarted head at the same instant.
    """

    def __init__(
        self, first_s: float = 0.5, most_s: float = 15.0, rng: random.Random | None = None
    ) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._rng = rng or random.Random()
        self._next_s = first_s

    def failed(self) -> float:
        """Seconds to wait after one more failure."""
        wait_s = self._next_s * self._rng.uniform(0.5, 1.0)
        self._next_s = min(self._most_s, self._next_s * 2)
        return wait_s

    def worked(self) -> None:
        self._next_s = self._first_s
