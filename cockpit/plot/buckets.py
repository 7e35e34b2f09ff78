"""Points of a chart, grouped into buckets, with gaps. Pure functions.

Buckets are computed incrementally, so that a redraw costs only the new and the visible points. A
series only grows at its end, except when it is downsampled or gets older points. Its length or two
of its times show these changes.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from cockpit.plot.points import AROUND, LEAST_GAP_S, gaps

BUCKETS = (4, 16, 64)
"""Points per bucket at each level, so that a redraw costs only the visible points."""
_RATIO = 4
WINDOW = 16
"""Points that are searched for holes together."""
FINE, INFINITE, NOT_A_NUMBER = 0, 1, 2
Extremes = tuple[float, float, int]
"""The least and the greatest finite value, and one of the three flags."""


class Source(Protocol):
    """Two arrays of one length, by rising time or step. They may be others at each look."""

    @property
    def times(self) -> Sequence[float]: ...

    @property
    def values(self) -> Sequence[float]: ...


class Derived:
    """A source that is made from another one."""

    def __init__(self) -> None:
        self.times: array[float] = array("d")
        self.values: array[float] = array("d")
        self.generation = 0
        """Counts how often points that were there have been taken back."""

    def sync(self) -> None:
        """Take in what the source has got since."""
        raise NotImplementedError


class Reader:
    """The position at which reading of a source continues."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._read = 0
        self._first = self._last = math.nan
        self._generation = 0

    def unread(self) -> int:
        """The first point that is new; 0 when all have to be read again."""
        times, read = self._source.times, self._read
        generation = self._source.generation if isinstance(self._source, Derived) else 0
        same = (
            read
            and generation == self._generation
            and read <= len(times)
            and times[0] == self._first
            and times[read - 1] == self._last
        )
        self._generation = generation
        self._read = len(times)
        if times:
            self._first, self._last = times[0], times[-1]
        return read if same else 0


class _Level:
    """The least and the greatest finite value of each full bucket, and its flag."""

    __slots__ = ("highs", "lows", "odd")

    def __init__(self) -> None:
        self.lows: list[float] = []
        self.highs: list[float] = []
        self.odd = bytearray()


class Points:
    """A source folded into the least and the greatest finite value of each bucket of points."""

    def __init__(self, source: Source, least_gap: float = LEAST_GAP_S) -> None:
        """`least_gap`: in the unit of the source's axis, see `gaps`."""
        self.source = source
        self._least_gap = least_gap
        self._reader = Reader(source)
        self.restarts = 0
        """Counts how often all points had to be read again: what was made of them is void."""
        self.kept: object = None
        """The newest result of each chart."""
        self._levels = tuple(_Level() for _ in BUCKETS)
        self._holes: list[int] = []
        self._holes_of_tail: list[int] = []
        self._searched = 0
        self.sync()

    def __len__(self) -> int:
        return len(self.source.times)

    @property
    def holes(self) -> list[int]:
        """The points that do not continue from the one before; see `gaps`."""
        return self._holes + self._holes_of_tail

    def sync(self) -> None:
        """Fold what is new, once a bucket is full."""
        if isinstance(self.source, Derived):
            self.source.sync()
        if self._reader.unread() == 0:
            self.restarts += 1
            self._levels = tuple(_Level() for _ in BUCKETS)
            self._holes.clear()
            self._searched = 0
        times = self.source.times
        self._fold(self.source.values)
        for end in range(self._searched + WINDOW, len(times) - AROUND + 1, WINDOW):
            self._holes += gaps(times, self._searched, end, self._least_gap)
            self._searched = end
        self._holes_of_tail = gaps(times, self._searched, None, self._least_gap)

    def _fold(self, values: Sequence[float]) -> None:
        finest = self._levels[0]
        begin = len(finest.lows) * _RATIO
        end = len(values) // _RATIO * _RATIO
        if begin < end:
            new = list(values[begin:end])
            if math.isfinite(sum(new)):
                quarters = [new[n::_RATIO] for n in range(_RATIO)]
                finest.lows += map(min, *quarters)
                finest.highs += map(max, *quarters)
                finest.odd += bytes(len(quarters[0]))
            else:
                for at in range(0, len(new), _RATIO):
                    low, high, odd = extremes(new[at : at + _RATIO])
                    finest.lows.append(low)
                    finest.highs.append(high)
                    finest.odd.append(odd)
        for finer, coarser in pairwise(self._levels):
            begin = len(coarser.lows) * _RATIO
            end = len(finer.lows) // _RATIO * _RATIO
            if begin < end:
                coarser.lows += map(min, *(finer.lows[n:end:_RATIO] for n in _four(begin)))
                coarser.highs += map(max, *(finer.highs[n:end:_RATIO] for n in _four(begin)))
                coarser.odd += bytes(map(max, *(finer.odd[n:end:_RATIO] for n in _four(begin))))

    def extremes(self, begin: int, end: int, level: int = len(BUCKETS) - 1) -> Extremes:
        """Of the points from `begin` to before `end`; see the function of that name."""
        if level < 0:
            return extremes(self.source.values[begin:end])
        size, folded = BUCKETS[level], self._levels[level]
        a, b = -(-begin // size), min(end // size, len(folded.lows))
        if b - a < 1:
            return self.extremes(begin, end, level - 1)
        low, high = min(folded.lows[a:b]), max(folded.highs[a:b])
        odd = max(folded.odd[a:b])
        for first, last in ((begin, a * size), (b * size, end)):
            if first < last:
                part_low, part_high, part_odd = self.extremes(first, last, level - 1)
                low, high, odd = min(low, part_low), max(high, part_high), max(odd, part_odd)
        return low, high, odd

    def folded(self, bucket: int) -> tuple[list[float], list[float], bytearray]:
        """Least values, greatest values and flags of the full buckets of that size. Read only."""
        level = self._levels[BUCKETS.index(bucket)]
        return level.lows, level.highs, level.odd

    def bounds(self, start: float, end: float) -> tuple[float, float] | None:
        """Return the minimum and maximum finite value in the range, or None without any.

        The range includes one more point on each side, since the line to it is visible.
        """
        times = self.source.times
        begin = bisect_left(times, start)
        until = bisect_left(times, end, begin)
        low, high, _ = self.extremes(max(0, begin - 1), min(len(times), until + 1))
        return (low, high) if low <= high else None

    def at(self, place: float, within: float) -> float | None:
        """The value of the point nearest to a place; None when none is `within` reach."""
        times = self.source.times
        after = bisect_left(times, place)
        near = [n for n in (after - 1, after) if 0 <= n < len(times)]
        best = min(near, key=lambda n: abs(times[n] - place), default=None)
        if best is None:
            return None
        if abs(times[best] - place) <= within:
            return self.source.values[best]
        # Between two points of one line there is a value, too: the one before still holds.
        joined = 0 < after < len(times) and after not in self.holes
        return self.source.values[after - 1] if joined else None


def _four(begin: int) -> range:
    return range(begin, begin + _RATIO)


def extremes(values: Sequence[float]) -> Extremes:
    """Return the minimum and maximum finite value, and the flags INFINITE and NOT_A_NUMBER.

    Without a finite value they are inf and -inf.
    """
    # A list: several passes over an array would make its floats as often.
    part = list(values)
    if math.isfinite(sum(part)):
        return (min(part), max(part), FINE) if part else (math.inf, -math.inf, FINE)
    finite = [value for value in part if math.isfinite(value)]
    if any(value != value for value in part):
        odd = NOT_A_NUMBER
    else:
        odd = INFINITE if len(finite) < len(part) else FINE
    return min(finite, default=math.inf), max(finite, default=-math.inf), odd
