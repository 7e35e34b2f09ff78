"""Series on another axis, and smoothed ones, that grow with what they are made of. Pure."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Sequence

from cockpit.plot.buckets import Derived, Reader, Source


class Projected(Derived):
    """A series on another axis: shifted in time, or by step.

    By step, only the newest value of each step is kept: repeated steps replace those of the
    previous attempt.
    """

    def __init__(
        self, source: Source, *, shift_s: float = 0.0, progress: Source | None = None
    ) -> None:
        """`progress`: the step by time.

        Steps between two of its points are interpolated; a point before the first has no position.
        """
        super().__init__()
        self._source, self._shift_s, self._progress = source, shift_s, progress
        self._reader = Reader(source)
        self._progress_reader = None if progress is None else Reader(progress)

    def sync(self) -> None:
        begin = self._reader.unread()
        if self._progress_reader is not None and self._progress_reader.unread() == 0:
            begin = 0
        if begin == 0:
            self._take_back(0)
        times, values = self._source.times[begin:], self._source.values[begin:]
        if self._progress is None:
            self.times.extend([at_s + self._shift_s for at_s in times])
            self.values.extend(values)
        else:
            self._by_step(times, values, self._progress)

    def _by_step(self, times: Sequence[float], values: Sequence[float], progress: Source) -> None:
        if not times:
            return
        reported_s, steps = progress.times, progress.values
        at = bisect_left(reported_s, times[0])
        last = len(reported_s) - 1
        for at_s, value in zip(times, values, strict=True):
            while at <= last and reported_s[at] < at_s:
                at += 1
            if at > last:
                if last < 0:
                    return
                step = steps[last]
            elif reported_s[at] == at_s:
                step = steps[at]
            elif at == 0:
                continue
            else:
                share = (at_s - reported_s[at - 1]) / (reported_s[at] - reported_s[at - 1])
                step = steps[at - 1] + share * max(0.0, steps[at] - steps[at - 1])
            if self.times and self.times[-1] >= step:
                self._take_back(bisect_left(self.times, step))
            self.times.append(step)
            self.values.append(value)

    def _take_back(self, size: int) -> None:
        if len(self.times) > size:
            self.generation += 1
            del self.times[size:]
            del self.values[size:]


class Smoothed(Derived):
    """An exponential moving average with bias correction, as in TensorBoard.

    m(n) = w·m(n-1) + (1-w)·v(n), shown as m(n) / (1 - w^n); a value that is not finite is kept and
    not averaged (TensorBoard: vz_line_chart2/line-chart.ts, resmoothDataset).
    """

    def __init__(self, source: Source, weight: float) -> None:
        """`weight`: w, from 0 (no smoothing) to below 1."""
        super().__init__()
        self._source, self._weight = source, weight
        self._reader = Reader(source)
        self._mean, self._rest = 0.0, 1.0

    def sync(self) -> None:
        if isinstance(self._source, Derived):
            self._source.sync()
        begin = self._reader.unread()
        if begin == 0:
            self.generation += bool(self.times)
            self.times, self.values = array("d"), array("d")
            self._mean, self._rest = 0.0, 1.0
        weight, mean, rest = self._weight, self._mean, self._rest
        smooth: list[float] = []
        for value in self._source.values[begin:]:
            if not math.isfinite(value):
                smooth.append(value)
                continue
            mean = weight * mean + (1 - weight) * value
            rest *= weight
            smooth.append(mean / (1 - rest))
        self._mean, self._rest = mean, rest
        self.times.extend(self._source.times[begin:])
        self.values.extend(smooth)
