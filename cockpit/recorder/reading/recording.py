"""A recording, read: as events in order of time, or as the store that they make."""

from __future__ import annotations

import heapq
import math
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from cockpit.model.decoding.value_range import moment_s
from cockpit.model.error import CockpitError
from cockpit.model.event import Event
from cockpit.model.run import RunState, RunSummary
from cockpit.model.text import one_line
from cockpit.recorder import file
from cockpit.recorder.codec import CodecError, decode, from_plain
from cockpit.recorder.writing.running_summary import Marker
from cockpit.store.store import Store

Timed = tuple[float, Event]


class Recording:
    """One file, opened to read; it may still be written to. Close it, or use `with`.

    Of a file that is damaged, what can be read is there, and `damage` names what cannot.
    """

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.path = path
        self.damage = ""
        """One line: what could not be read so far; empty when all could."""
        self._db = db
        self._batches: list[tuple[float, float, int]] = []
        self._facts: dict[str, Any] = {}
        self._bad_lines = self._bad_batches = 0
        self._missing: set[int] = set()
        self.refresh()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Raises CockpitError when it is not a recording, or one of a newer cockpit."""
        db = file.open_to_read(path)
        try:
            return cls(path, db)
        except file.TORN as error:
            db.close()
            raise file.unreadable(path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def refresh(self) -> None:
        """Look again for what has been written since."""
        self._facts, unreadable = file.facts(self._db)
        if unreadable:
            self._damaged(f"{', '.join(unreadable[:3])} cannot be read")
        self._batches = self._index()

    @property
    def run(self) -> RunSummary:
        """The summary of the run."""
        try:
            return from_plain(RunSummary, self._facts["run"])
        except KeyError:
            pass
        except CodecError:
            self._damaged("its summary cannot be read")
        return RunSummary("", self.path.stem, "", RunState.UNKNOWN)

    @property
    def begin_s(self) -> float:
        """The first moment, in Unix seconds; 0 without any."""
        return self._batches[0][0] if self._batches else 0.0

    @property
    def end_s(self) -> float:
        return max((to_s for _, to_s, _ in self._batches), default=0.0)

    @property
    def closed(self) -> bool:
        """Whether its recorder ended in good order; not while it is being written."""
        return self._facts.get("closed") is True

    @property
    def dropped(self) -> int:
        """Events that the recorder lost because the disk was too slow, or full."""
        dropped = self._facts.get("dropped")
        return dropped if isinstance(dropped, int) else 0

    @property
    def markers(self) -> tuple[Marker, ...]:
        """Attempts, drills, alerts, marks and the end, in order of time."""
        try:
            rows = self._db.execute("SELECT at_s, kind, text FROM markers ORDER BY at_s").fetchall()
        except file.TORN as error:
            self._damaged(str(error))
            return ()
        found = []
        for at_s, kind, text in rows:
            try:
                found.append(
                    Marker(moment_s(at_s), one_line(str(kind)), one_line(str(text or ""), 1000))
                )
            except (TypeError, ValueError):
                self._damaged("a marker cannot be read")
        return tuple(found)

    def events(self, from_s: float | None = None, to_s: float | None = None) -> Iterator[Event]:
        """In order of the moments that they belong to, both ends included."""
        for _, event in self.timed(from_s, to_s):
            yield event

    def of_kinds(self, *kinds: type[Event]) -> Iterator[Event]:
        """The events of these kinds, in order. Other lines are not decoded."""
        starts = tuple(f'["{kind.__name__}"' for kind in kinds)
        for _, event in self.timed(starts=starts):
            yield event

    def timed(
        self,
        from_s: float | None = None,
        to_s: float | None = None,
        *,
        starts: tuple[str, ...] = ("",),
    ) -> Iterator[Timed]:
        """The events, each with its time, of the lines that begin with one of `starts`."""
        begin = float("-inf") if from_s is None else from_s
        end = float("inf") if to_s is None else to_s
        waiting = [b for b in self._batches if b[1] >= begin and b[0] <= end]
        # Batches overlap when a stream was read later than it was written. A heap holds the lines
        # of the open batches: a batch is opened when no earlier line is left.
        heap: list[tuple[float, int, int, str]] = []
        last_s = begin
        for from_batch, _, row in [*waiting, (float("inf"), 0.0, -1)]:
            while heap and (heap[0][0] < from_batch or row < 0):
                when_s, _, _, line = heapq.heappop(heap)
                if when_s > end:
                    return
                last_s = max(last_s, when_s)
                if when_s >= begin and (found := self._decoded(line)) is not None:
                    yield found
            if row >= 0:
                lines = self._lines(row)
                if lines is None:
                    # Its recorder has since merged it into another, or the table is torn.
                    self._missing.add(row)
                    self.refresh()
                    yield from self.timed(math.nextafter(last_s, math.inf), to_s, starts=starts)
                    return
                for number, line in enumerate(lines):
                    if line.startswith(starts):
                        heap.append((_moment(line), row, number, line))
                heapq.heapify(heap)

    def store(self, until_s: float | None = None) -> Store:
        """Return the state at that time; without a time, of the complete recording."""
        store = Store()
        for event in self.events(None, until_s):
            store.apply(event)
        return store

    def _decoded(self, line: str) -> Timed | None:
        try:
            return decode(line)
        except CodecError:
            self._bad_lines += 1
            self._report_damage()
            return None

    def _lines(self, row: int) -> list[str] | None:
        """None for a batch that is not there any more."""
        try:
            found = self._db.execute("SELECT body FROM batches WHERE id = ?", (row,)).fetchone()
            return None if found is None else file.unpack(found[0])
        except (*file.TORN, zlib.error, TypeError, ValueError):
            self._bad_batches += 1
            self._report_damage()
            return []

    def _index(self) -> list[tuple[float, float, int]]:
        """(from, to, row) of each batch, by time. Of a torn table, from both of its ends."""
        found: dict[int, tuple[float, float, int]] = {}
        for order in ("ASC", "DESC"):
            rows = f"SELECT id, from_s, to_s FROM batches NOT INDEXED ORDER BY id {order}"
            try:
                for row, from_s, to_s in self._db.execute(rows):
                    try:
                        found[row] = (moment_s(from_s), moment_s(to_s), row)
                    except (TypeError, ValueError):
                        self._damaged(f"the times of batch {row} cannot be read")
                break
            except file.TORN as error:
                self._damaged(f"a part of its table is torn ({error})")
        return sorted(batch for row, batch in found.items() if row not in self._missing)

    def _report_damage(self) -> None:
        parts = []
        if self._bad_batches:
            parts.append(f"{self._bad_batches} batches")
        if self._bad_lines:
            parts.append(f"{self._bad_lines} lines")
        self._damaged(f"{' and '.join(parts)} cannot be read")

    def _damaged(self, what: str) -> None:
        self.damage = what


def _moment(line: str) -> float:
    """Parse only the time of a line; invalid lines sort first."""
    try:
        if line.endswith("}]"):
            return moment_s(line.split(",", 2)[1])
        return moment_s(line[line.rindex(",") + 1 : -1])
    except (IndexError, ValueError):
        return float("-inf")


def opened(path: Path) -> Recording:
    """As `Recording.open`, but file system errors are raised as CockpitError."""
    try:
        return Recording.open(path)
    except OSError as error:
        raise CockpitError(f"{path} cannot be opened.", error.strerror or str(error)) from error
