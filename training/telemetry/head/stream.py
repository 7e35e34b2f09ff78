"""The files of a telemetry stream: numbered lines, each flushed, private to the user, bounded."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from training.telemetry.head.segment_snapshot import SegmentSnapshot
from training.telemetry.head.world import identity
from training.telemetry.settings import DISK_BYTES, OLD_AFTER_S, SEGMENTS
from training.telemetry.wire import Body, Record, Segment, Steps, Tick, WireError, decode, encode

log = logging.getLogger(__name__)

_RECENT_BYTES = 1 << 20
"""Ticks at the end of the stream: some seconds of FULL_RANKS ranks."""

_TICK = f'"kind":"{Tick.KIND}"'.encode()


class StreamFile:
    """Append records and number them; continues where an earlier writer of the stream stopped.

    `path` is the first segment's. A file that has grown to `disk_bytes / segments` is left
    unchanged, and another one started: Ray's log routes follow an open file, so a file with readers
    is never renamed or truncated (ray 2.60, dashboard/modules/log/log_agent.py). Beyond `segments`
    files the oldest are deleted; the records that a reader needs are repeated in each.

    Raises OSError if a file cannot be opened or written.
    """

    def __init__(self, path: Path, disk_bytes: int = DISK_BYTES, segments: int = SEGMENTS) -> None:
        self._path, self._limit, self._segments = path, max(1, disk_bytes // segments), segments
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._snapshot = SegmentSnapshot()
        self._repeated_bytes = 0
        """The size of the snapshot at the start of the current file: not counted, or a long one
        would fill it.
        """
        self._is_stuck = False
        numbers = sorted(self._files())
        self._segment = numbers[-1] if numbers else 0
        self._recent: frozenset[tuple[object, ...]] = frozenset()
        self._seq, self._torn = self._recover(numbers)
        self._file = self._open(self._segment)
        if self._torn:
            self._end_line()

    @property
    def snapshot(self) -> SegmentSnapshot:
        return self._snapshot

    def had(self, run: str, steps: Steps) -> bool:
        """Whether the writer before this one has just written the record."""
        return (run, *identity(steps)) in self._recent

    def append(self, t: float, body: Body) -> None:
        record = Record(self._seq + 1, t, body)
        self._write(self._file, encode(record).encode() + b"\n")
        self._seq += 1
        self._snapshot.take(record)
        if os.fstat(self._file).st_size - self._repeated_bytes >= self._limit:
            try:
                self._rotate(t)
            except OSError:
                # There is no space for a new file; the existing files are unchanged.
                if not self._is_stuck:
                    log.warning("telemetry: no new file could be begun", exc_info=True)
                self._is_stuck = True

    def lose(self) -> None:
        """A record that could not be written leaves a gap in the numbers, which readers detect."""
        self._seq += 1

    def keep(self, old_after_s: float = OLD_AFTER_S) -> None:
        """Renew the time of the last write before the file counts as old: a run that waits for
        resources for hours writes nothing, and `disk_budget` deletes old files.
        """
        if time.time() - os.fstat(self._file).st_mtime > old_after_s / 2:
            os.utime(self._file)

    def close(self) -> None:
        os.close(self._file)

    def _rotate(self, t: float) -> None:
        """The new file is complete before the old one refers to it."""
        for number in sorted(self._files())[: 1 - self._segments or None]:
            if number != self._segment:
                self._at(number).unlink(missing_ok=True)
        text = Record(self._seq + 1, t, Segment(segment=self._segment + 1))
        line = encode(text).encode() + b"\n"
        repeated = [encode(record).encode() + b"\n" for record in self._snapshot.records()]
        file = self._open(self._segment + 1)
        try:
            os.ftruncate(file, 0)
            self._write(file, b"".join([line, *repeated]))
        except OSError:
            os.close(file)
            self._torn = False  # the incomplete line is in a deleted file
            self._at(self._segment + 1).unlink(missing_ok=True)
            raise
        old, self._file = self._file, file
        self._repeated_bytes = os.fstat(file).st_size
        self._is_stuck = False
        self._segment += 1
        self._seq += 1
        # Without this line readers find the next file when they list the files again.
        with suppress(OSError):
            self._write(old, line)
        os.close(old)

    def _write(self, file: int, line: bytes) -> None:
        if self._torn:
            self._end_line()
        while line:
            line = line[os.write(file, line) :]
            self._torn = bool(line)

    def _end_line(self) -> None:
        """From a writer that died, or whose disk was full, in the middle of it."""
        os.write(self._file, b"\n")
        self._torn = False

    def _open(self, segment: int) -> int:
        return os.open(self._at(segment), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def _at(self, segment: int) -> Path:
        name = f"{self._path.stem}.{segment:06d}{self._path.suffix}" if segment else self._path.name
        return self._path.with_name(name)

    def _files(self) -> Iterator[int]:
        """The existing segments."""
        if self._path.exists():
            yield 0
        for path in self._path.parent.glob(f"{self._path.stem}.*{self._path.suffix}"):
            number = path.name.removeprefix(f"{self._path.stem}.").removesuffix(path.suffix)
            if number.isdigit() and path == self._at(int(number)):
                yield int(number)

    def _recover(self, numbers: list[int]) -> tuple[int, bool]:
        """The highest number in the stream, 0 for a new one, and whether the last line is
        incomplete.

        The snapshot is read again, from all files, and of the ticks only the newest.
        """
        highest, torn = 0, False
        recent, recent_bytes = deque[bytes](), 0
        for number in numbers:
            with self._at(number).open("rb") as file:
                for line in file:
                    torn = not line.endswith(b"\n")
                    if _TICK in line[:200]:
                        recent.append(line)
                        recent_bytes += len(line)
                        while recent_bytes > _RECENT_BYTES and len(recent) > 1:
                            recent_bytes -= len(recent.popleft())
                    elif (record := _decoded(line)) is not None:
                        highest = max(highest, record.seq)
                        self._snapshot.take(record)
        ticks = [record for line in recent if (record := _decoded(line)) is not None]
        self._recent = frozenset(
            (record.body.run, *identity(steps))
            for record in ticks
            if isinstance(record.body, Tick)
            for steps in record.body.ranks
        )
        return max([highest, *(record.seq for record in ticks)]), torn


def _decoded(line: bytes) -> Record | None:
    try:
        return decode(line)
    except WireError:
        return None
