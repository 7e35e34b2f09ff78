"""A curve by pixel column. Pure: no widget, no clock.

The points of a column are reduced to their minimum and maximum, so that a spike of one point is
visible at any width.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from msgspec import Struct

from cockpit.plot.buckets import BUCKETS, FINE, Points

LEAST_BUCKETS = 6
"""A column that holds fewer buckets is folded from smaller ones."""


class Trace(Struct, frozen=True):
    """A curve by pixel column; `low` and `high` are NaN where there is nothing."""

    first: list[float]
    last: list[float]
    low: list[float]
    high: list[float]
    odd: bytearray
    """INFINITE or NOT_A_NUMBER where there is such a value: the line is broken there."""
    joined: list[int]
    """Columns whose first point continues from the point before it."""

    def in_powers(self) -> Trace:
        """For a logarithmic axis: log10 of each value; -inf for values without one."""
        first, last, low, high = (
            [_power(value) for value in part]
            for part in (self.first, self.last, self.low, self.high)
        )
        return Trace(first, last, low, high, self.odd, self.joined)


def trace(
    points: Points, start: float, end: float, pixels: int, breaks: Sequence[float] = ()
) -> Trace:
    """Reduce the points in a range of the axis to that many pixel columns.

    `breaks`: sorted positions across which no line is drawn, such as the start of an attempt. With
    many points a column, a point may be drawn a sixth of a column too early.
    """
    key = (start, end, pixels, tuple(breaks), points.restarts)
    kept = points.kept
    if not (isinstance(kept, _Fold) and kept.key == key and kept.goes_on(points)):
        kept = points.kept = _Fold(key, points, start, end, pixels, breaks)
    kept.fold(points)
    return kept.found


class _Fold:
    """A trace in the making. New points of the same window are added to what there is."""

    def __init__(
        self,
        key: object,
        points: Points,
        start: float,
        end: float,
        pixels: int,
        breaks: Sequence[float],
    ) -> None:
        self.key = key
        self._start, self._end, self._pixels, self._breaks = start, end, max(0, pixels), breaks
        times = points.source.times
        self._begin = bisect_left(times, start) if end > start and pixels else len(times)
        stop = bisect_left(times, end, self._begin)
        few = (stop - self._begin) / (LEAST_BUCKETS * max(1, pixels))
        self._bucket = max((size for size in BUCKETS if size <= few), default=1)
        self._a_pixel = (end - start) / max(1, pixels)
        self._walls: list[int] = []
        """The points that may not be joined with the one before: after a hole, after a break."""
        self._hard: frozenset[int] = frozenset()
        """Those after a break."""
        self._size = -1
        self._ended = False
        self._clear()

    def _clear(self) -> None:
        first, last, low, high = ([math.nan] * self._pixels for _ in range(4))
        self.found = Trace(first, last, low, high, bytearray(self._pixels), [])
        self._state = (self._begin, -1, True, -2)
        """The first point of the newest column, that column, and before it: whether the line was
        broken, and which column was the last."""

    def goes_on(self, points: Points) -> bool:
        """Whether new points are at the end, and the right edge was open."""
        return not self._ended or self._size == len(points)

    def fold(self, points: Points) -> None:
        times = points.source.times
        if self._size == len(times) or self._end <= self._start or not self._pixels:
            return
        stop = bisect_left(times, self._end, self._begin)
        before = self._walls
        self._find_walls(points)
        at = self._state[0]
        if self._size >= 0 and _until(before, at) == _until(self._walls, at):
            self._clear_newest()
        else:
            # The usual interval is known better now: a gap may be none.
            self._clear()
            if 0 < self._begin < len(times) and self._begin not in self._walls:
                self._enter_left(points)
        self._size = len(times)
        self._columns(points, stop)
        self._ended = stop < len(times)
        if self._ended and stop > 0 and stop not in self._walls:
            self._leave_right(points, stop)

    def _columns(self, points: Points, stop: int) -> None:
        walls, hard = self._walls, self._hard
        found, times, values = self.found, points.source.times, points.source.values
        first, last, low, high, odd = found.first, found.last, found.low, found.high, found.odd
        pixels, a_pixel, start, bucket = self._pixels, self._a_pixel, self._start, self._bucket
        lows, highs, flags = points.folded(bucket) if bucket > 1 else ([], [], b"")
        # Most curves contain only finite values, and then one check is enough.
        fine = points.extremes(self._begin, stop)[2] == FINE
        at, _, broken, previous = self._state
        wall = bisect_right(walls, max(0, at - bucket))
        isfinite = math.isfinite
        while at < stop:
            column = min(pixels - 1, int((times[at] - start) / a_pixel))
            self._state = (at, column, broken, previous)
            if column == pixels - 1:
                until = stop
            else:
                until = bisect_left(times, start + (column + 1) * a_pixel, at, stop)
                until = until if until > at else at + 1
            if bucket > 1:
                until = min(stop, -(-until // bucket) * bucket)
            a, b = at // bucket, until // bucket
            if bucket > 1 and b <= len(lows) and b * bucket == until:
                least, greatest = min(lows[a:b]), max(highs[a:b])
                flag = FINE if fine else max(flags[a:b])
            elif until == at + 1 and fine:
                least, greatest, flag = values[at], values[at], FINE
            else:
                least, greatest, flag = points.extremes(at, until)
            apart = False
            while wall < len(walls) and walls[wall] <= at:
                # A gap between neighbouring columns is not visible.
                apart = apart or column - previous > 1 or walls[wall] in hard
                wall += 1
            # A gap within a column is not visible; in its last bucket it is before the next column.
            while wall < len(walls) and walls[wall] <= until - bucket:
                wall += 1
            if flag:
                odd[column] = flag
            if least <= greatest:
                starts, ends = values[at], values[until - 1]
                if not fine:
                    starts_well, ends_well = isfinite(starts), isfinite(ends)
                else:
                    starts_well = ends_well = True
                if not (broken or apart) and starts_well:
                    found.joined.append(column)
                has_value = low[column] == low[column]  # the line that enters from the left
                first[column] = first[column] if has_value else starts if starts_well else least
                last[column] = ends if ends_well else greatest
                low[column] = min(low[column], least) if has_value else least
                high[column] = max(high[column], greatest) if has_value else greatest
                broken, previous = not ends_well, column
            else:
                broken = True
            at = until

    def _find_walls(self, points: Points) -> None:
        times, holes = points.source.times, points.holes
        places = (bisect_left(times, place) for place in self._breaks)
        self._hard = frozenset(at for at in places if 0 < at < len(times))
        self._walls = sorted({*holes, *self._hard}) if self._hard else holes

    def _clear_newest(self) -> None:
        """The newest column was not full: it is folded again."""
        column = self._state[1]
        found = self.found
        if column < 0:
            return
        for at in range(column, self._pixels):
            for part in (found.first, found.last, found.low, found.high):
                part[at] = math.nan
            found.odd[at] = 0
        while found.joined and found.joined[-1] >= column:
            found.joined.pop()

    def _enter_left(self, points: Points) -> None:
        if _enter(self.found, points, self._begin, self._start, 0):
            self._state = (self._begin, -1, False, 0)

    def _leave_right(self, points: Points, stop: int) -> None:
        edge = self._pixels - 1
        empty = self.found.low[edge] != self.found.low[edge]
        if empty and _enter(self.found, points, stop, self._end, edge):
            self.found.joined.append(edge)


def _until(walls: Sequence[int], at: int) -> Sequence[int]:
    return walls[: bisect_right(walls, at)]


def _enter(found: Trace, points: Points, after: int, place: float, column: int) -> bool:
    """Let the line from the point before `after` cross the edge of what is shown."""
    times, values = points.source.times, points.source.values
    a, b = values[after - 1], values[after]
    span = times[after] - times[after - 1]
    if not (math.isfinite(a) and math.isfinite(b) and span > 0):
        return False
    value = a + (b - a) * ((place - times[after - 1]) / span)
    for part in (found.first, found.last, found.low, found.high):
        part[column] = value
    return True


def _power(value: float) -> float:
    return math.log10(value) if value > 0 else -math.inf if value == value else value
