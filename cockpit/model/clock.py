"""The time, corrected by the clock of the cluster's servers.

On a host whose clock is an hour ahead, a fault would seem to follow the steps that it interrupts,
every run would look stalled, and every pod an hour older. So the clock is corrected by the Date
header (RFC 9110, 6.6.1) of the Ray dashboard's responses if it is wrong by more than TOLERANCE_S.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

TOLERANCE_S = 2.0
"""A Date header has whole seconds, and clocks that are kept by NTP differ by less than one."""
EARLIEST_S, LATEST_S = 1_577_836_800.0, 4_102_444_800.0
"""The years 2020 to 2099. A header with another year is an error or an attack, and is ignored."""
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class ServerClock:
    """Unix time in seconds; called like `time.time`, from any thread."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self.offset_s = 0.0
        """The correction that is added to this host's clock; negative if that clock is ahead."""

    def __call__(self) -> float:
        return self._wall() + self.offset_s

    def correct(self, date: str | None, took_s: float) -> None:
        """Use the Date header of a response that started `took_s` after its request."""
        if not date:
            return
        try:
            server_s = _seconds(date)
        except ValueError:
            return
        if not EARLIEST_S <= server_s < LATEST_S:
            return
        now_s = self._wall()
        # At some moment since the request was sent, the server's clock was between `server_s` and
        # one second more.
        least, most = server_s - now_s, server_s + 1.0 - (now_s - took_s)
        if least - TOLERANCE_S <= self.offset_s <= most + TOLERANCE_S:
            return
        close = least - TOLERANCE_S <= 0.0 <= most + TOLERANCE_S
        self.offset_s = 0.0 if close else (least + most) / 2


def _seconds(date: str) -> float:
    """Unix time of `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, 5.6.7). Raises ValueError.

    The two obsolete formats of the RFC are errors. Python's `email.utils` costs 4 ms of import.
    """
    _, day, month, year, clock, zone = date.split()
    if zone != "GMT":
        raise ValueError(f"not in GMT: {date!r}")
    hour, minute, second = map(int, clock.split(":"))
    month_number = _MONTHS.index(month) + 1
    try:
        at = datetime(int(year), month_number, int(day), hour, minute, second, tzinfo=UTC)
    except OverflowError as error:  # a year of twenty digits
        raise ValueError(f"no HTTP date: {date!r}") from error
    return at.timestamp()


server_time = ServerClock()
"""The clock of this process."""
