"""Which lines of a log are shown. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left

from msgspec import Struct, field

from cockpit.store.store import LogBuffer


class LogLines(Struct):
    """The lines of a log that pass the filter, updated incrementally.

    Lines are numbered from the start of the log, so that numbers do not change when older lines are
    dropped.
    """

    lines: list[str] = field(default_factory=list)
    first: int = 0
    """The number of `lines[0]`."""
    pattern: re.Pattern[str] | None = None
    only_matching: bool = True
    _matching: list[int] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.first + len(self.lines)

    @property
    def is_filtered(self) -> bool:
        return self.pattern is not None and self.only_matching

    def __len__(self) -> int:
        """How many lines are shown."""
        return len(self._matching) if self.is_filtered else len(self.lines)

    @property
    def matches(self) -> int:
        return len(self._matching)

    def line(self, index: int) -> str:
        """The line shown at that place."""
        return self.lines[self._matching[index] - self.first if self.is_filtered else index]

    def number(self, index: int) -> int:
        """The number in the log of the line shown at that place."""
        return self._matching[index] if self.is_filtered else self.first + index

    def place(self, number: int) -> int:
        """The position of that line, else of the next one."""
        if self.is_filtered:
            return bisect_left(self._matching, number)
        return min(max(0, number - self.first), len(self.lines))

    def update(self, buffer: LogBuffer) -> bool:
        """Take what the buffer holds now; whether anything changed."""
        previous_total = self.total
        if buffer.total == previous_total and buffer.first == self.first:
            return False
        restarted = buffer.total < previous_total
        # A copy of references, for a deque is slow in the middle.
        self.lines, self.first = list(buffer.lines), buffer.first
        if restarted:
            self._matching = self._match(self.first)
        else:
            del self._matching[: bisect_left(self._matching, self.first)]
            self._matching += self._match(max(previous_total, self.first))
        return True

    def set_pattern(self, pattern: re.Pattern[str] | None, *, only_matching: bool) -> None:
        self.pattern, self.only_matching = pattern, only_matching
        self._matching = self._match(self.first)

    def _match(self, since: int) -> list[int]:
        if self.pattern is None:
            return []
        search = self.pattern.search
        fresh = enumerate(self.lines[since - self.first :], start=since)
        return [number for number, line in fresh if search(line)]
