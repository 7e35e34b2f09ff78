"""The ticks of an axis and their labels. Pure."""

from __future__ import annotations

import math

from msgspec import Struct

from cockpit.plot.scale import nice_step, time_step
from cockpit.report import values
from cockpit.report.document import Kind

LOG_FROM = 30.0
"""The ratio of maximum to minimum from which a logarithmic axis may be used."""
LOG_BELOW = 0.15
"""It does when half of the values lie below this part of a linear axis."""
LEAST_SPAN = 0.04
"""Of the values: less would show noise as if it were news."""
LARGEST, SMALLEST = 1e300, 1e-300
"""Ends of an axis: the arithmetic of its ticks has to stay within what a float can hold."""
_LEVELS = (Kind.BYTES, Kind.PERCENT, Kind.WATTS)
"""How full or busy something is: always drawn from zero."""
_FROM_ZERO = (*_LEVELS, Kind.RATE, Kind.SECONDS)


class Axis(Struct, frozen=True):
    """From `low` to `high`, of values; `ticks` are (value, label)."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def part(self, value: float) -> float:
        """Return the position of the value, clipped to 0 (low) to 1 (high)."""
        if self.log:
            if value <= 0:
                return 0.0
            low, high, value = math.log(self.low), math.log(self.high), math.log(value)
        else:
            low, high = self.low, self.high
        return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5


def value_axis(low: float, high: float, kind: Kind, *, log: bool = False, parts: int = 4) -> Axis:
    """Return round bounds around the values.

    Values with a natural zero begin there, unless far from it.
    """
    low, high = (min(LARGEST, max(-LARGEST, value)) for value in (low, high))
    if log and low > 0:
        return _log_axis(max(low, SMALLEST), max(high, SMALLEST), kind)
    if low >= 0 and (kind in _LEVELS or (kind in _FROM_ZERO and low < 0.7 * high)):
        low = 0.0
    least = (LEAST_SPAN if kind in _FROM_ZERO else LEAST_SPAN / 10) * abs(high)
    if low < high < low + least:
        low, high = (low + high - least) / 2, (low + high + least) / 2
    if high <= low:
        room = abs(low) * 0.1 or 1.0
        low, high = (low - room, high + room) if low else (0.0, 1.0)
    power = 1.0
    if kind is Kind.BYTES:
        power = 1024.0 ** max(0, math.floor(math.log(max(abs(low), abs(high), 1.0), 1024)))
    step = nice_step((high - low) / power, parts) * power
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple((at * step, _label(at * step, kind)) for at in range(first, last + 1))
    if len({label for _, label in ticks}) < len(ticks):  # the steps are finer than the format
        decimals = max(0, -math.floor(math.log10(step)))
        ticks = tuple((value, f"{value:.{decimals}f}") for value, _ in ticks)
    return Axis(first * step, last * step, ticks)


def _label(value: float, kind: Kind) -> str:
    if value == 0:
        return "0"
    return f"{value:g} %" if kind is Kind.PERCENT else values.shown(value, kind)


def _log_axis(low: float, high: float, kind: Kind) -> Axis:
    begin, end = math.floor(math.log10(low)), math.ceil(math.log10(high))
    end = max(end, begin + 1)
    every = max(1, math.ceil((end - begin) / 6))
    factors = (1, 2, 5) if end - begin <= 2 else (1,)
    ticks = [
        (factor * 10.0**power, _label(factor * 10.0**power, kind))
        for power in range(begin, end + 1, every)
        for factor in factors
    ]
    low_tick = max((value for value, _ in ticks if value <= low * 1.0001), default=ticks[0][0])
    high_tick = min((value for value, _ in ticks if value >= high * 0.9999), default=10.0**end)
    inside = tuple(tick for tick in ticks if low_tick <= tick[0] <= high_tick)
    return Axis(low_tick, high_tick, inside, log=True)


def time_axis(begin_s: float, end_s: float, parts: int = 6) -> Axis:
    """Seconds since the run's start."""
    end_s = max(end_s, begin_s + 1.0)
    step = int(time_step(end_s - begin_s, parts))
    first, last = math.ceil(begin_s / step), math.floor(end_s / step)
    ticks = tuple((float(at * step), elapsed(at * step)) for at in range(first, last + 1))
    return Axis(begin_s, end_s, ticks)


def elapsed(seconds: int) -> str:
    """`45 s`, `10 m`, `1 m 30 s`, `2 h`, `2 h 15 m`, `3 d`: as short as possible."""
    if seconds == 0:
        return "0"
    sign, left = ("-", -seconds) if seconds < 0 else ("", seconds)
    parts = []
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return sign + " ".join(parts[:2])
