"""CPU and memory of this process, from /proc; None without /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path

from training.process_stat import cpu_s

_STATM = Path("/proc/self/statm")


class Process:
    def __init__(self) -> None:
        self._before = (time.monotonic(), _cpu_s())

    def cpu_percent(self) -> float | None:
        """Since the last call; 100 is one core."""
        (then, used_then), (now, used) = self._before, (time.monotonic(), _cpu_s())
        self._before = (now, used)
        if used is None or used_then is None or now <= then:
            return None
        return 100.0 * (used - used_then) / (now - then)

    def memory_bytes(self) -> int | None:
        """The resident set."""
        try:
            return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            return None


def _cpu_s() -> float | None:
    try:
        return cpu_s()
    except OSError:
        return None
