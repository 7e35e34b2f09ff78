"""Quantities as text."""

from __future__ import annotations


def seconds(value: float) -> str:
    """`1.23 s`, `4.56 ms`, `7.89 µs`."""
    if value >= 1 or value == 0:
        return f"{_three(value)} s"
    return f"{_three(value * 1e3)} ms" if value >= 1e-3 else f"{_three(value * 1e6)} µs"


def size(value: float) -> str:
    """Bytes, in powers of 1000: `1.5 GB`."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{_three(value / factor)} {unit}"
    return f"{value:.0f} B"


def bandwidth(value: float) -> str:
    return f"{size(value)}/s"


def rate(value: float) -> str:
    return f"{_three(value)}/s"


def ratio(value: float) -> str:
    return f"{value:.3f}"


def share(value: float) -> str:
    return f"{value:.1%}"


def _three(value: float) -> str:
    """Three significant digits, and all digits before the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
