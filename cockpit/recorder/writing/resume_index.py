"""Index the contents of a file, so that a recorder can resume it without duplicates.

Every cockpit reads the telemetry stream from its start, and the end of a log: without this index,
each one that attaches to a run would write them again.
"""

from __future__ import annotations

import math
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress

from msgspec import Struct, field
from msgspec.structs import replace

from cockpit.model.event import Event, LogLines, SourceHealth
from cockpit.recorder import file
from cockpit.recorder.codec import CodecError, decode

STREAM = "telemetry"
OVERLAP_S = 10.0
"""Two lines of a stream may be this much out of order."""
LOG_BATCHES = 200
"""How far back the end of a log is searched."""
LAST_LINES = 5


Waiting = tuple[Event, float, float]
"""An event that is not written yet, its moment, and when it was taken."""


def is_streamed(event: Event) -> bool:
    """Whether it is part of the telemetry stream."""
    return event.source == STREAM and not isinstance(event, SourceHealth)


class ResumeIndex(Struct):
    """`until_s`: up to there the file has everything of the stream."""

    until_s: float = float("-inf")
    _lines: set[str] = field(default_factory=set)
    """Of the stream, from shortly before `until_s`."""
    _log_ends: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The last lines of each log that the file has."""

    @classmethod
    def of(cls, db: sqlite3.Connection, until_s: float) -> ResumeIndex:
        index = cls(until_s)
        if math.isfinite(until_s):
            found = "SELECT body FROM batches WHERE to_s >= ?"
            index._lines = set(map(_without_moment, _read(db, found, until_s - OVERLAP_S)))
        ends: dict[str, list[str]] = {}
        for line in _read(db, "SELECT body FROM batches ORDER BY id DESC LIMIT ?", LOG_BATCHES):
            if line.startswith('["LogLines"'):
                with suppress(CodecError):
                    decoded = decode(line)
                    if decoded is not None and isinstance(decoded[1], LogLines):
                        ends.setdefault(decoded[1].stream, []).append(line)
        for stream, lines in ends.items():
            events = [decoded[1] for decoded in map(decode, lines) if decoded is not None]
            events.sort(key=lambda event: event.at_s)
            last = [line for event in events if isinstance(event, LogLines) for line in event.lines]
            index._log_ends[stream] = tuple(last[-LAST_LINES:])
        return index

    def has(self, when_s: float, line: str) -> bool:
        """Whether the file has this line of the stream."""
        if when_s < self.until_s - OVERLAP_S:
            return True
        return when_s <= self.until_s + OVERLAP_S and _without_moment(line) in self._lines

    def unread(self, event: LogLines) -> LogLines | None:
        """Without the lines that the file has; only the first that is read again may have any."""
        end = self._log_ends.pop(event.stream, ())
        if not end:
            return event
        lines = event.lines
        for at in range(len(lines) - len(end), -1, -1):
            if lines[at : at + len(end)] == end:
                rest = lines[at + len(end) :]
                return replace(event, lines=rest) if rest else None
        return event


def with_joined_logs(waiting: Sequence[Waiting]) -> list[Waiting]:
    """Make one event of all waiting lines of a log, at the place of the last.

    The file may have any of them, and `unread` looks for them only in the first event of a log.
    """
    logs: dict[str, list[str]] = {}
    for event, _, _ in waiting:
        if isinstance(event, LogLines):
            logs.setdefault(event.stream, []).extend(event.lines)
    joined = []
    for event, when_s, taken_s in reversed(waiting):
        if isinstance(event, LogLines):
            lines = logs.pop(event.stream, None)
            if lines is None:
                continue
            event = replace(event, lines=tuple(lines))
        joined.append((event, when_s, taken_s))
    return joined[::-1]


def _without_moment(line: str) -> str:
    """Without the time of arrival, which differs at each read."""
    return line if line.endswith("}]") else line.rpartition(",")[0] + "]"


def _read(db: sqlite3.Connection, query: str, parameter: float) -> Iterator[str]:
    for (body,) in db.execute(query, (parameter,)):
        with suppress(zlib.error, ValueError, TypeError):
            yield from file.unpack(body)
