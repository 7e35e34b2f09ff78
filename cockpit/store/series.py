"""Bounded series of (time, value) points."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

CLOCK_JUMP_S = 120.0
"""Ranks send a minute of records again after an outage: what is older by more is another clock."""


class Series:
    """At most `capacity` points, oldest first. Times are Unix seconds; values may be NaN.

    Stored in two arrays, 16 bytes per point. At least the newest third is kept in full. Older
    points are downsampled: each is the mean of a group of neighbours, and the group size doubles
    when this part is full. So a series of a week fits, from its first point on. The mean of a group
    with a NaN is NaN.

    Series that get their points at the same times may share the array of times (`share_with`). Each
    appends a time that the array does not have yet, so the array may be longer than `_values`.
    """

    __slots__ = ("_capacity", "_merged", "_past", "_stride", "_times", "_values")

    def __init__(self, capacity: int) -> None:
        self._capacity = max(8, capacity)
        self._times = array("d")
        self._values = array("d")
        self._past = 0
        """How many of the points are the past."""
        self._stride = 1
        """The number of original points in each downsampled point."""
        self._merged = 1
        """How many are in its newest one so far."""

    def append(self, at_s: float, value: float) -> None:
        """Times do not decrease: for an older time, see `_set_back`."""
        size = len(self._values)
        if 0 < size == len(self._times) - 1:  # a series that shares the times has appended one
            last_s = self._times[size - 1]
            if self._times[size] == max(at_s, last_s) and last_s - at_s <= CLOCK_JUMP_S:
                self._values.append(value)
                return
        times = self.times
        if times and at_s < times[-1]:
            at_s = self._set_back(at_s)
        if size >= self._capacity:
            self._make_room()
        self._times.append(at_s)
        self._values.append(value)

    def prepend(self, points: Iterable[tuple[float, float]]) -> None:
        """Insert points before the first one. Points that are not older are skipped."""
        first = self._times[0] if self._times else math.inf
        older = [(at_s, value) for at_s, value in points if at_s < first]
        self._times = array("d", (at_s for at_s, _ in older)) + self.times
        self._values = array("d", (value for _, value in older)) + self._values
        if self._past == 0:
            self._merged = self._stride
        self._past += len(older)
        if len(self._times) > self._capacity:
            self._make_room()

    def share_times(self, known: dict[bytes, Series]) -> None:
        """Use the array of a series in `known` that has the same times; otherwise join `known`.

        Many curves have the same times: shared, they take half of their memory.
        """
        self._times = known.setdefault(self.times.tobytes(), self)._times

    def share_with(self, other: Series) -> None:
        """Use the array of times of another series if it has the same times."""
        if len(self) == len(other) and self.times == other.times:
            self._times = other._times

    def limit(self, capacity: int) -> None:
        """Lower the capacity: the newest third of it is kept in full, the rest is downsampled."""
        self._capacity = max(8, min(self._capacity, capacity))
        if len(self) >= self._capacity:
            self._times = self.times
            self._make_room()

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return zip(self.times, self._values, strict=True)

    @property
    def times(self) -> array[float]:
        """Read only: the array is the buffer itself, not a copy."""
        if len(self._times) > len(self._values):  # another series has grown, and this one has not
            self._times = self._times[: len(self._values)]
        return self._times

    @property
    def values(self) -> array[float]:
        """Read only: the array is the buffer itself, not a copy."""
        return self._values

    @property
    def full_since_s(self) -> float:
        """From this time on, no point is the mean of several."""
        if self._stride == 1 or not self._values:
            return -math.inf
        return self.times[min(self._past, len(self) - 1)]

    @property
    def last(self) -> float | None:
        return self._values[-1] if self._values else None

    def bookmark(self) -> Bookmark:
        """Return the current state of the series, without a copy of the points."""
        return Bookmark(
            self._capacity,
            self._times,
            self._values,
            len(self._values),
            self._past,
            self._stride,
            self._merged,
        )

    @classmethod
    def at(cls, mark: Bookmark) -> Series:
        """Return a copy of the series at the time of the bookmark."""
        made = cls(mark.capacity)
        made._times, made._values = mark.times[: mark.size], mark.values[: mark.size]
        made._past, made._stride, made._merged = mark.past, mark.stride, mark.merged
        return made

    def _set_back(self, at_s: float) -> float:
        """Return the time to store for a late point.

        It is stored at the newest time. If the clock was set back far, the points after its time
        are deleted instead: otherwise no point would be newer until the clock caught up.
        """
        if self._times[-1] - at_s <= CLOCK_JUMP_S:
            return self._times[-1]
        left = bisect_left(self._times, at_s)
        self._times, self._values = self._times[:left], self._values[:left]
        if left < self._past:
            self._past, self._merged = left, self._stride
        return at_s

    def _make_room(self) -> None:
        while len(self._times) >= self._capacity:
            if self._past < self._capacity // 2:
                self._move(self._capacity // 4)
            else:
                self._halve()

    def _move(self, count: int) -> None:
        """Downsample the oldest original points."""
        begin, end = self._past, self._past + count
        times, values = self._times[:begin], self._values[:begin]
        merged = self._merged if begin else self._stride
        for at_s, value in zip(self._times[begin:end], self._values[begin:end], strict=True):
            if merged >= self._stride:
                times.append(at_s)
                values.append(value)
                merged = 1
            else:
                merged += 1
                times[-1] += (at_s - times[-1]) / merged
                values[-1] += (value - values[-1]) / merged
        self._past, self._merged = len(times), merged
        self._times = times + self._times[end:]
        self._values = values + self._values[end:]

    def _halve(self) -> None:
        """Each two points of the past become one; an odd newest one stays, half full."""
        even = self._past // 2 * 2
        self._times, self._values = (
            array("d", map(_mean, points[:even:2], points[1:even:2])) + points[even:]
            for points in (self._times, self._values)
        )
        if even == self._past:
            self._merged += self._stride
        self._past -= even // 2
        self._stride *= 2


class Bookmark(NamedTuple):
    """The state of a series. `times` and `values` may have grown since, beyond `size`."""

    capacity: int
    times: array[float]
    values: array[float]
    size: int
    past: int
    stride: int
    merged: int


class Curves:
    """Series by name, each with the same capacity and created with its first point.

    Those that are appended to one after another at the same times share the array of times.
    """

    __slots__ = ("_capacity", "_newest", "_series")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._series: dict[str, Series] = {}
        self._newest: Series | None = None
        """The one that was appended to last."""

    def __getitem__(self, name: str) -> Series:
        """Return the series, or an empty one that must not be modified."""
        return self._series.get(name) or Series(8)

    def __contains__(self, name: str) -> bool:
        return name in self._series

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def append(self, name: str, at_s: float, value: float) -> None:
        series, other = self.open(name), self._newest
        before = len(series)
        series.append(at_s, value)
        if other is not None and (before == 0 or len(series) <= before):  # new or downsampled
            series.share_with(other)
        self._newest = series

    def share_times(self, known: dict[bytes, Series]) -> None:
        """`Series.share_times` of all."""
        for series in self._series.values():
            series.share_times(known)

    def limit(self, capacity: int) -> None:
        """`Series.limit` of all, and of those that are created later."""
        self._capacity = min(self._capacity, capacity)
        for series in self._series.values():
            series.limit(capacity)

    def bookmarks(self) -> tuple[int, dict[str, Bookmark]]:
        """Return the current state of all series; see `Series.bookmark`."""
        return self._capacity, {name: one.bookmark() for name, one in self._series.items()}

    @classmethod
    def at(cls, marks: tuple[int, dict[str, Bookmark]]) -> Curves:
        """Return copies of the curves at the time of the bookmarks."""
        made = cls(marks[0])
        made._series = {name: Series.at(mark) for name, mark in marks[1].items()}
        return made

    def open(self, name: str) -> Series:
        """To be written to."""
        series = self._series.get(name)
        if series is None:
            series = self._series[name] = Series(self._capacity)
        return series


def _mean(one: float, other: float) -> float:
    return (one + other) / 2
