"""Round numbers for the axes of a chart. Pure."""

from __future__ import annotations

import math

POWER_AT_MOST = 307
"""A float cannot hold nine times a higher power of ten; a metric may be near its limits."""
LEAST_SPAN = 1e-300
"""Parts of a smaller one may be 0."""


def nice_step(span: float, parts: int) -> float:
    """1, 2 or 5 times a power of ten, such that about `parts` of them make the span."""
    if not span > LEAST_SPAN or not math.isfinite(span):
        return 1.0
    raw = span / max(1, parts)
    power = 10.0 ** math.floor(math.log10(raw))
    for factor in (1, 2, 5):
        if raw <= factor * power * 1.0001:
            return factor * power
    return 10 * power


_TIME_STEPS = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
    3600, 7200, 10_800, 21_600, 43_200, 86_400,
)  # fmt: skip


def time_step(span_s: float, parts: int) -> float:
    """A round number of seconds, minutes, hours or days between two labels."""
    raw = span_s / max(1, parts)
    for step in _TIME_STEPS:
        if raw <= step:
            return step
    return math.ceil(raw / 86_400) * 86_400.0


def y_range(low: float, high: float, rows: int) -> tuple[float, float, list[float]]:
    """The range that holds both, and its ticks, at most one every other row."""
    if low == high:
        pad = abs(low) * 0.05 or 1.0
        low, high = low - pad, high + pad
    span = high - low
    margin = span * 0.02
    if not (math.isfinite(low - margin) and math.isfinite(high + margin)):
        return low, high, []
    step = nice_step(span, max(2, rows // 3))
    bottom, top = low - margin, high + margin
    if 0 <= low < 0.25 * span:
        bottom = 0.0
    first = math.ceil(bottom / step - 1e-9)
    count = math.floor(top / step + 1e-9) - first + 1
    return bottom, top, [(first + n) * step for n in range(min(count, 4 * rows))]


def log_range(low: float, high: float, rows: int) -> tuple[float, float, list[float]]:
    """As `y_range`, in powers of ten: the ends are exponents, the ticks are values.

    Both must be above 0. Ticks are powers of ten, and what is 2 and 5 times one where there are
    few of them.
    """
    bottom, top = math.log10(low), math.log10(high)
    if top - bottom < 0.05:
        bottom, top = bottom - 0.1, top + 0.1
    margin = (top - bottom) * 0.02
    bottom, top = bottom - margin, top + margin
    powers = range(
        max(-POWER_AT_MOST, math.ceil(bottom - 1)), min(POWER_AT_MOST, math.floor(top)) + 1
    )
    room = max(2, rows // 2)
    ticks = [0.0]
    for factors in ((1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 5), (1,)):
        ticks = [
            factor * 10.0**power
            for power in powers
            for factor in factors
            if bottom <= math.log10(factor * 10.0**power) <= top
        ]
        if len(ticks) <= room:
            return bottom, top, ticks
    return bottom, top, ticks[:: math.ceil(len(ticks) / room)]
