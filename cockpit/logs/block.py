"""The lines of one log in little memory, and all logs merged by time.

A string of 100 characters with its time and its tuple takes 270 bytes in Python; here the same line
takes 101 before it is parsed and 113 after, so that a million lines are 113 MB at most.
"""

from __future__ import annotations

import heapq
import math
import re
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    """The lines of one log, in order; `at_s` never decreases.

    A line is parsed when `entries` comes to it: a screen of rows needs few lines of each log, and
    to parse a million takes seconds. `parse` parses lines before that.
    """

    def __init__(self, read: Callable[[Iterable[str]], Iterator[Line]]) -> None:
        """`read` parses lines in their order, and returns those that are kept."""
        self._read = read
        self._raw: deque[bytes] = deque()
        """Lines that are not parsed, each with its newline."""
        self._unparsed: Iterator[Line] | None = None
        """The lines of `_raw`, if some of them were parsed."""
        self._text = bytearray()
        self._ends = array("Q")
        self._times = array("d")
        self._flags = bytearray()

    def add(self, lines: Sequence[bytes]) -> None:
        """Lines without their newline. Not while `entries` is read."""
        if lines:
            self._raw.append(b"\n".join([*lines, b""]))

    def parse(self, until: Callable[[Line], bool] | None = None) -> bool:
        """Parse up to the first kept line that `until` is true of, and return whether there is one.

        The lines that are already parsed are not asked.
        """
        for line in self._rest():
            self._append(line)
            if until is not None and until(line):
                return True
        self._unparsed = None
        return False

    def entries(self, index: int) -> Iterator[Entry]:
        """The lines from the first one on, each parsed when it is asked for. To be called once."""
        start = 0
        for end, at_s, flags in zip(self._ends, self._times, self._flags, strict=True):
            text = self._text[start:end].decode()
            yield Entry(at_s, index, text, _LEVELS[flags & 3], bool(flags & _HAS_TIME))
            start = end
        for line in self._rest():
            yield entry_of(index, line)
        self._unparsed = None

    def _append(self, line: Line) -> None:
        self._text += line.text.encode(errors="replace")
        self._ends.append(len(self._text))
        self._times.append(-math.inf if line.at_s is None else line.at_s)
        self._flags.append(_LEVELS.index(line.level) | (_HAS_TIME if line.has_time else 0))

    def _rest(self) -> Iterator[Line]:
        if self._unparsed is None:
            self._unparsed = self._read(self._lines())
        return self._unparsed

    def _lines(self) -> Iterator[str]:
        while self._raw:
            piece = self._raw.popleft()
            start = 0
            while (end := piece.find(b"\n", start)) >= 0:
                yield piece[start:end].decode(errors="replace")
                start = end + 1


def entry_of(index: int, line: Line) -> Entry:
    text = line.text
    if not text.isascii():
        # A JSON text can hold half characters, which UTF-8 cannot.
        text = text.encode(errors="replace").decode()
    at_s = -math.inf if line.at_s is None else line.at_s
    return Entry(at_s, index, text, line.level, line.has_time)


def merged(blocks: Sequence[Block]) -> Iterator[Entry]:
    """All lines by time; those of one log in their order, and at one time together."""
    # Entries of two logs differ in `log` at the latest, so that texts are never compared.
    return heapq.merge(*(block.entries(index) for index, block in enumerate(blocks)))


class FirstError:
    """The earliest error that a rank, the driver or the controller wrote, kept or not.

    Of equal times, that of the first log. An error without a time counts only while there is none
    with a time.
    """

    def __init__(self) -> None:
        self.entry: Entry | None = None

    @property
    def is_without_time(self) -> bool:
        return self.entry is not None and self.entry.at_s == -math.inf

    def see(self, index: int, log: Log, line: Line) -> None:
        if line.level != "bad" or not log.kind.is_application:
            return
        if self.entry is None or _rank_of(line.at_s, index) < _rank_of(
            None if self.is_without_time else self.entry.at_s, self.entry.log
        ):
            self.entry = entry_of(index, line)


def _rank_of(at_s: float | None, index: int) -> tuple[float, int]:
    return (math.inf if at_s is None else at_s, index)


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
