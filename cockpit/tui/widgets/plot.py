"""From arrays of numbers to a grid of characters. Pure: no widget, no clock.

A curve is folded into the minimum and maximum of each pixel column by slices of its arrays, so
that the cost follows the width of the chart more than the number of points.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from cockpit.tui.symbols import Symbols

GAP_FACTOR = 4.0
"""Points further apart than so many usual intervals are not joined."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A curve by pixel column; `low` and `high` are NaN where there is nothing."""

    first: list[float]
    last: list[float]
    low: list[float]
    high: list[float]
    nan: list[bool]
    """Where a value is not a number."""
    joined: list[int]
    """Columns whose first point goes on from the point before it."""


def bounds(
    times: Sequence[float], values: Sequence[float], start_s: float, end_s: float
) -> tuple[float, float] | None:
    """The least and the greatest finite value between two times; None without any."""
    begin = bisect_left(times, start_s)
    part = list(values[begin : bisect_left(times, end_s, begin)])
    if not math.isfinite(sum(part)):
        part = [value for value in part if math.isfinite(value)]
    return (min(part), max(part)) if part else None


def usual_interval(times: Sequence[float]) -> float:
    """How far apart, in seconds, three quarters of the newest points are at most.

    Not the median: a tick of several ranks may be as many points close together, then a second
    of nothing.
    """
    newest = times[-64:]
    steps = sorted(b - a for a, b in pairwise(newest) if b > a)
    return steps[3 * len(steps) // 4] if steps else 0.0


def trace(
    times: Sequence[float], values: Sequence[float], start_s: float, end_s: float, pixels: int
) -> Trace:
    """Fold the points between two times into that many pixel columns."""
    nan = math.nan
    first, last = [nan] * pixels, [nan] * pixels
    low, high = [nan] * pixels, [nan] * pixels
    is_nan = [False] * pixels
    joined: list[int] = []
    if pixels <= 0 or end_s <= start_s:
        return Trace(first, last, low, high, is_nan, joined)
    a_pixel_s = (end_s - start_s) / pixels
    gap_s = max(GAP_FACTOR * usual_interval(times), 2 * a_pixel_s)
    begin = bisect_left(times, start_s)
    stop = bisect_left(times, end_s, begin)
    before_s, broken = -math.inf, True
    at = begin
    while at < stop:
        column = min(pixels - 1, int((times[at] - start_s) / a_pixel_s))
        until = bisect_left(times, start_s + (column + 1) * a_pixel_s, at, stop)
        until = stop if column == pixels - 1 else max(until, at + 1)
        # A list: three passes over an array would make its floats three times.
        part = list(values[at:until])
        total = sum(part)
        starts_broken = ends_broken = False
        if total != total:
            starts_broken, ends_broken = part[0] != part[0], part[-1] != part[-1]
            # Infinities of both signs add up to NaN too: only what is NaN itself goes.
            kept = [value for value in part if value == value]
            is_nan[column] = len(kept) < len(part)
            part = kept
        if part:
            first[column], last[column] = part[0], part[-1]
            low[column], high[column] = min(part), max(part)
            if not broken and not starts_broken and times[at] - before_s <= gap_s:
                joined.append(column)
        before_s = times[until - 1]
        broken = ends_broken or not part
        at = until
    return Trace(first, last, low, high, is_nan, joined)


def nice_step(span: float, parts: int) -> float:
    """1, 2 or 5 times a power of ten, such that about `parts` of them make the span."""
    if not span > 0 or not math.isfinite(span):
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
    if not math.isfinite(span):
        return low, high, []
    step = nice_step(span, max(2, rows // 3))
    margin = span * 0.02
    bottom, top = low - margin, high + margin
    if 0 <= low < 0.25 * span:
        bottom = 0.0
    first = math.ceil(bottom / step - 1e-9)
    count = math.floor(top / step + 1e-9) - first + 1
    return bottom, top, [(first + n) * step for n in range(min(count, 4 * rows))]


@dataclass(frozen=True, slots=True)
class _Cell:
    """How many pixels a character has, and which character shows which of them.

    Bits count column by column, each from the top.
    """

    wide: int
    high: int
    characters: str


def _braille() -> str:
    # Unicode numbers the dots 1-3 and 7 down the left, 4-6 and 8 down the right.
    dots = (0x01, 0x02, 0x04, 0x40, 0x08, 0x10, 0x20, 0x80)
    return "".join(
        chr(0x2800 + sum(dot for n, dot in enumerate(dots) if bits >> n & 1)) for bits in range(256)
    )


_CELLS = {
    Symbols.BRAILLE: _Cell(2, 4, _braille()),
    # Bits: upper left, lower left, upper right, lower right.
    Symbols.BLOCK: _Cell(2, 2, " ▘▖▌▝▀▞▛▗▚▄▙▐▜▟█"),
    # Bits: top, middle, bottom.
    Symbols.ASCII: _Cell(1, 3, " '-!_|:|"),
}


def pixels_wide(cells: int, symbols: Symbols) -> int:
    """How many pixel columns so many cells have."""
    return cells * _CELLS[symbols].wide


class Canvas:
    """Pixels in cells of one character and one colour each; the last curve to touch it gives it."""

    def __init__(self, width: int, height: int, symbols: Symbols) -> None:
        self.width, self.height = width, height
        self._cell = _CELLS[symbols]
        self._bits = [bytearray(width) for _ in range(height)]
        self._owner = [bytearray(width) for _ in range(height)]

    def draw(self, curve: Trace, bottom: float, top: float, owner: int) -> None:
        """Draw a curve in a colour numbered from 0."""
        pixels = self.height * self._cell.high
        scale = (pixels - 1) / (top - bottom) if top > bottom else 0.0

        def row(value: float) -> int:
            if value >= top:
                return 0
            if value <= bottom:
                return pixels - 1
            return round((top - value) * scale)

        joined = set(curve.joined)
        before = -1
        end_row = 0
        for column, value in enumerate(curve.low):
            if value != value:
                continue
            upper, lower = row(curve.high[column]), row(value)
            if column in joined and before >= 0:
                start_row = row(curve.first[column])
                if column - before > 1:
                    self._slope(before, end_row, column, start_row, owner)
                elif end_row < upper:
                    upper = end_row + 1
                elif end_row > lower:
                    lower = end_row - 1
            self._bar(column, min(upper, lower), max(upper, lower), owner)
            before, end_row = column, row(curve.last[column])

    def is_drawn(self, x: int, y: int) -> bool:
        return self._bits[y][x] != 0

    def drawn(self, y: int) -> list[tuple[int, str, int]]:
        """What a row holds: (x, character, colour's number)."""
        characters, owners = self._cell.characters, self._owner[y]
        return [(x, characters[bits], owners[x]) for x, bits in enumerate(self._bits[y]) if bits]

    def _slope(self, x0: int, y0: int, x1: int, y1: int, owner: int) -> None:
        """The line between two columns, without its ends."""
        previous = y0
        for x in range(x0 + 1, x1):
            y = y0 + round((y1 - y0) * (x - x0) / (x1 - x0))
            if y > previous:
                self._bar(x, previous + 1, y, owner)
            elif y < previous:
                self._bar(x, y, previous - 1, owner)
            else:
                self._bar(x, y, y, owner)
            previous = y

    def _bar(self, column: int, upper: int, lower: int, owner: int) -> None:
        wide, high = self._cell.wide, self._cell.high
        x, shift = column // wide, column % wide * high
        for y in range(upper // high, lower // high + 1):
            base = y * high
            a, b = max(upper - base, 0), min(lower - base, high - 1)
            self._bits[y][x] |= ((1 << (b + 1)) - (1 << a)) << shift
            self._owner[y][x] = owner
