"""Several logs as one: their lines are parsed, filtered, merged by time and folded."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, tzinfo
from functools import lru_cache, partial

from cockpit.logs.block import Block, Entry, FirstError, LineFilter, merged
from cockpit.logs.fold import folded
from cockpit.logs.line import Line, LineParser
from cockpit.logs.statistics import LINES, StatisticsFilter
from cockpit.logs.types import Kind, Log, Row
from cockpit.model.clock import server_time
from cockpit.model.text import one_line

FIRST_ERROR = ">> FIRST ERROR: "
CACHED = 4_096
"""Texts of seconds and of writers that are kept: most rows share them with their neighbours."""


class Merge:
    """The logs that are read, each with its parser and the lines that pass the filter."""

    def __init__(self, kept: LineFilter, zone: tzinfo, last: int) -> None:
        """`last`: how many of the last lines of each log are shown."""
        self.last = last
        self.logs: list[Log] = []
        self.read_lines: list[int] = []
        self._kept, self._zone = kept, zone
        self._parsers: list[LineParser] = []
        self._blocks: list[Block] = []
        self._first = FirstError()
        self._marked = False
        self._tails: dict[int, deque[str]] = {}
        """The last lines of logs without their statistics, until their number is known."""
        self._begun: set[int] = set()
        """Logs that have had their last lines: every later line is shown."""
        self._filters: list[StatisticsFilter | None] = []
        """None for logs without statistics. A pattern is searched in statistics as well."""

    def add(self, log: Log) -> int:
        """The number of the log for `take`."""
        self.logs.append(log)
        self.read_lines.append(0)
        self._parsers.append(LineParser(server_time, self._zone))
        self._blocks.append(self._block(len(self.logs) - 1))
        has_statistics = log.kind in LINES and self._kept.pattern is None
        self._filters.append(StatisticsFilter(log.kind) if has_statistics else None)
        return len(self.logs) - 1

    def tail_lines(self, log: Log) -> int:
        """How many of the last lines of `log` to read, so that the last ones can be shown."""
        return self.last + (LINES.get(log.kind, 0) if self._kept.pattern is None else 0)

    def take(self, index: int, lines: Sequence[bytes]) -> None:
        """The next lines of a log as they are in its file, without their newline."""
        self.read_lines[index] += len(lines)
        statistics = self._filters[index]
        if statistics is None:
            self._add(index, lines)
            return
        shown = statistics.without([line.decode(errors="replace") for line in lines])
        if index in self._begun:
            self._add(index, _encoded(shown))
        else:
            self._tails.setdefault(index, deque(maxlen=self.last)).extend(shown)

    def take_text(self, index: int, lines: Sequence[str]) -> None:
        self.take(index, _encoded(lines))

    def rows(self) -> Iterator[Row]:
        """The rows of all lines since the last call, which are dropped from memory after it.

        To be read to its end before the next call, and before more lines are taken.
        """
        for index, tail in self._tails.items():
            self._add(index, _encoded(tail))
        self._begun.update(self._tails)
        self._tails.clear()
        blocks, self._blocks = self._blocks, [self._block(at) for at in range(len(self.logs))]
        self._find_first_error(blocks)
        for row in folded(merged(blocks), self.logs, self._is_first_error):
            self._marked = self._marked or row.first_error
            yield row

    def _block(self, index: int) -> Block:
        return Block(partial(self._read, index))

    def _read(self, index: int, lines: Iterable[str]) -> Iterator[Line]:
        log = self.logs[index]
        for line in self._parsers[index].parse(lines):
            self._first.see(index, log, line)
            if self._kept.keeps(line):
                yield line

    def _add(self, index: int, lines: Sequence[bytes]) -> None:
        block = self._blocks[index]
        block.add(lines)
        if self._kept != LineFilter():
            block.parse()  # most lines are left out, and their text is not kept in memory

    def _find_first_error(self, blocks: Sequence[Block]) -> None:
        """Parse what is needed to know the first error before the merge comes to it.

        When it comes to an error, all lines before it were parsed. But lines without a time come
        before all others, and an error among them is the first one only if no other has a time.
        """
        for block in blocks:
            block.parse(lambda line: line.at_s is not None)
        if self._marked or not self._first.is_without_time:
            return
        # The driver and the controller write what the ranks failed with: they are parsed first.
        for index in sorted(range(len(blocks)), key=lambda at: self.logs[at].kind is Kind.RANK):
            if self.logs[index].kind.is_application and blocks[index].parse(_is_timed_error):
                return

    def _is_first_error(self, entry: Entry) -> bool:
        return not self._marked and entry == self._first.entry

    def unshown_error(self) -> Row | None:
        """The first error of the lines that were read, if the filter left it out."""
        first = self._first.entry
        if first is None or self._marked:
            return None
        at_s = None if first.at_s == -math.inf else first.at_s
        return Row(at_s, first.text, first.level, (self.logs[first.log],), first_error=True)


def _is_timed_error(line: Line) -> bool:
    return line.level == "bad" and line.at_s is not None


def _encoded(lines: Iterable[str]) -> list[bytes]:
    return [line.encode(errors="replace") for line in lines]


def text_of(row: Row) -> str:
    """`11-23 12:00:00.123  ranks 0-3 (8 lines)  text`."""
    at = "-" * 18
    if row.at_s is not None:
        at = f"{_second(int(row.at_s))}.{int(row.at_s % 1 * 1e3):03}"
    mark = FIRST_ERROR if row.first_error else ""
    many = f" ({row.count} lines)" if row.count > len(row.logs) else ""
    return f"{at}  {_short(row.writers)}{many}  {mark}{row.text}"


@lru_cache(CACHED)
def _second(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s):%m-%d %H:%M:%S}"


@lru_cache(CACHED)
def _short(writers: str) -> str:
    return one_line(writers, 60)
