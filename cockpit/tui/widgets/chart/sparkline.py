"""A curve in one line of text, for a cell of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from cockpit.tui.terminal.symbols import Symbols, symbols

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-=*#"


def sparkline(values: Sequence[float], width: int) -> str:
    """The newest values as characters from low to high, right-aligned in `width` cells.

    More values than cells are averaged by cell. NaN shows as `x`, infinity as the extreme; equal
    values are in the middle.
    """
    levels = _ASCII if symbols() is Symbols.ASCII else _BLOCKS
    cells = _fold(values, width)
    finite = [value for value in cells if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    line = "".join(_level(value, low, high, levels) for value in cells)
    return line.rjust(width)


def _fold(values: Sequence[float], width: int) -> list[float]:
    """At most `width` values: means of equal parts. A NaN in a part makes it NaN."""
    size = len(values)
    if size <= width:
        return list(values)
    edges = [size * n // width for n in range(width + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


def _level(value: float, low: float, high: float, levels: str) -> str:
    if math.isnan(value):
        return "x"
    if high <= low and math.isfinite(value):
        return levels[len(levels) // 2 - 1]
    if value >= high:
        return levels[-1]
    if value <= low:
        return levels[0]
    return levels[int((value - low) / (high - low) * (len(levels) - 1) + 0.5)]
