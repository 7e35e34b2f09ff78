"""A bounded series of (time, value) points."""

from __future__ import annotations

from array import array
from collections.abc import Iterator


class Series:
    """The newest `capacity` points, oldest first. Time in Unix seconds; values may be NaN.

    Two plain arrays: 16 bytes a point. When full, the oldest quarter goes at once, so that an
    append costs a memory move only once in `capacity / 4` appends.
    """

    __slots__ = ("_capacity", "_times", "_values")

    def __init__(self, capacity: int) -> None:
        self._capacity = max(4, capacity)
        self._times = array("d")
        self._values = array("d")

    def append(self, at_s: float, value: float) -> None:
        if len(self._times) >= self._capacity:
            drop = self._capacity // 4
            del self._times[:drop]
            del self._values[:drop]
        self._times.append(at_s)
        self._values.append(value)

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return zip(self._times, self._values, strict=True)

    @property
    def times(self) -> array[float]:
        """Read only: the array is the buffer itself, not a copy."""
        return self._times

    @property
    def values(self) -> array[float]:
        """Read only: the array is the buffer itself, not a copy."""
        return self._values

    @property
    def last(self) -> float | None:
        return self._values[-1] if self._values else None
