"""Valid ranges of numbers; a value outside is an error or an attack, not a measurement.

A time of 1e300 has no date, and a loop over 10**18 ranks never ends.
"""

from __future__ import annotations

from typing import Any

EARLIEST_S, LATEST_S = -62_135_596_800.0, 253_402_300_799.0
"""The years 1 to 9999, as Unix times: the dates that `time.localtime` and `datetime` support."""
MAX_COUNT = 10_000_000
"""The limit of ranks, attempts and other counted things."""
MAX_BYTES = 1 << 60
"""The limit of sizes, an exbibyte."""


def moment_s(value: Any) -> float:
    """A Unix time in seconds. Raises ValueError or TypeError."""
    time_s = float(value)
    if not EARLIEST_S <= time_s <= LATEST_S:
        raise ValueError("a time out of range")
    return time_s


def count(value: Any) -> int:
    """A whole number from 0 to MAX_COUNT. Raises ValueError, TypeError or OverflowError."""
    number = int(value)
    if not 0 <= number <= MAX_COUNT:
        raise ValueError("a count out of range")
    return number


def bytes_of(value: Any) -> int:
    """A size from 0 to MAX_BYTES. Raises ValueError, TypeError or OverflowError."""
    number = int(value)
    if not 0 <= number <= MAX_BYTES:
        raise ValueError("a size out of range")
    return number
