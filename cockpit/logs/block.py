"""The lines of one log in little memory, and all logs merged by time.

A string of 100 characters with its time and its tuple takes 270 bytes in Python; here the same line
takes 113, so that a million lines are 113 MB.
"""

from __future__ import annotations

import heapq
import math
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from cockpit.logs.line import Line
from cockpit.logs.types import Log

_LEVELS = ("", "warning", "bad")
_HAS_TIME = 4


class Entry(NamedTuple):
    """A line of one of several logs. `log` is an index of the sequence of logs."""

    at_s: float
    """Minus infinity where no line so far has a time: what has no time comes first."""
    log: int
    text: str
    level: str
    has_time: bool


class Block:
    """The lines of one log, in order; `at_s` never decreases."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._text = bytearray()
        self._ends = array("Q")
        self._times = array("d")
        self._flags = bytearray()

    def __len__(self) -> int:
        return len(self._times)

    @property
    def first_s(self) -> float | None:
        """The earliest time of the log."""
        return next((at_s for at_s in self._times if at_s != -math.inf), None)

    def append(self, line: Line) -> None:
        # A JSON text can hold half characters, which UTF-8 cannot.
        self._text += line.text.encode(errors="replace")
        self._ends.append(len(self._text))
        self._times.append(-math.inf if line.at_s is None else line.at_s)
        self._flags.append(_LEVELS.index(line.level) | (_HAS_TIME if line.has_time else 0))

    def entries(self, index: int) -> Iterator[Entry]:
        start = 0
        for end, at_s, flags in zip(self._ends, self._times, self._flags, strict=True):
            text = self._text[start:end].decode()
            yield Entry(at_s, index, text, _LEVELS[flags & 3], bool(flags & _HAS_TIME))
            start = end


def merged(blocks: Sequence[Block]) -> Iterator[Entry]:
    """All lines by time; those of one log in their order, and at one time together."""
    # Entries of two logs differ in `log` at the latest, so that texts are never compared.
    return heapq.merge(*(block.entries(index) for index, block in enumerate(blocks)))


class FirstError:
    """The earliest error that a rank, the driver or the controller wrote, kept or not.

    One without a time counts only while there is none with a time.
    """

    def __init__(self) -> None:
        self.entry: Entry | None = None
        self._at_s = math.inf

    def see(self, index: int, log: Log, line: Line) -> None:
        at_s = math.inf if line.at_s is None else line.at_s
        if line.level != "bad" or not log.kind.is_application:
            return
        if self.entry is None or at_s < self._at_s:
            self._at_s = at_s
            text = line.text.encode(errors="replace").decode()  # as a block keeps it
            own_s = -math.inf if line.at_s is None else line.at_s
            self.entry = Entry(own_s, index, text, line.level, line.has_time)


class LineFilter(Struct, frozen=True):
    """Which lines are kept; None: all."""

    pattern: re.Pattern[str] | None = None
    since_s: float | None = None
    until_s: float | None = None

    def keeps(self, line: Line) -> bool:
        """A line without a time is left out when a time is asked for."""
        if self.since_s is not None and (line.at_s is None or line.at_s < self.since_s):
            return False
        if self.until_s is not None and (line.at_s is None or line.at_s > self.until_s):
            return False
        return self.pattern is None or self.pattern.search(line.text) is not None

    def kept(self, lines: Iterable[Line]) -> Iterator[Line]:
        return filter(self.keeps, lines)
