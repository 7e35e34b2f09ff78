"""Events into the file: a small batch a second, and each minute one large batch of those.

A batch a second is what a SIGKILL may cost; a minute's batch packs five times better, and is what a
replay reads.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from cockpit import __version__
from cockpit.model.event import Event, LogLines
from cockpit.model.run import RunState, RunSummary
from cockpit.recorder import file
from cockpit.recorder.codec import CodecError, encode, from_plain, to_plain
from cockpit.recorder.writing.resume_index import ResumeIndex, is_streamed
from cockpit.recorder.writing.running_summary import Marker, RunningSummary

MERGE_EVERY_S = 60.0
MERGE_CHARS = 4 << 20
BATCH_CHARS = 1 << 20
"""A history that is read at once makes more than one batch, so that a part can be read alone."""
CHECKPOINT_EVERY_S = 10.0
"""How old the main file may be without its write-ahead log, for who copies only the one."""

Line = tuple[float, str]


class Writer:
    """The writer of one file; used by one thread.

    Opening and committing raise sqlite3.Error and OSError. `suspend` closes the file for a while,
    so that many runs need few descriptors; `reopen` continues where it stopped.
    """

    def __init__(
        self,
        path: Path,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self._monotonic = monotonic
        self.db = file.open_to_write(path)
        self.is_open = True
        self._begun = False
        self._last_row: int | None = None
        """The newest batch when the file was suspended."""
        self._running_summary = RunningSummary()
        self._fresh: list[Line] = []
        self._markers: list[Marker] = []
        self._tail: list[tuple[int, list[Line]]] = []
        """Batches that are not merged yet, by their rows."""
        self._tail_chars = 0
        self._merged_at = self._checked_at = monotonic()
        self._reported_s = float("-inf")
        """The newest moment in the stream that is in the file."""
        self._resume_index = ResumeIndex()
        self._dormant = False
        """The file holds a run that was over: nothing is added until its stream continues."""
        self._written: tuple[object, ...] = ()
        try:
            self._resume()
        except BaseException:
            self.db.close()
            raise

    def put(self, event: Event, when_s: float) -> None:
        """To be written with the next commit, unless the file has it already."""
        if isinstance(event, LogLines):
            unread = self._resume_index.unread(event)
            if unread is None:
                return
            event = unread
        line = encode(event, when_s)
        if is_streamed(event):
            if self._resume_index.has(when_s, line):
                return
            self._dormant = False
            self._reported_s = max(self._reported_s, when_s)
        if self._dormant:
            return
        self._fresh.append((when_s, line))
        if (marker := self._running_summary.take(event, when_s)) is not None:
            self._markers.append(marker)

    def commit(self, summary: RunSummary | None, dropped: int, *, last: bool = False) -> None:
        """Write the lines since the last write. After a failure they are kept for the next try."""
        if self._fresh or (last and not self._dormant):
            self._commit(summary, dropped, last=last)
        now = self._monotonic()
        full = self._tail_chars > MERGE_CHARS or now - self._merged_at >= MERGE_EVERY_S
        if (full or last) and len(self._tail) > 1:
            self._merge()
        if full or last:
            self._tail, self._tail_chars, self._merged_at = [], 0, now
        if now - self._checked_at >= CHECKPOINT_EVERY_S:
            self._checked_at = now
            self.db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def suspend(self) -> None:
        """Close the file, whose committed batches are then not merged any more."""
        self._last_row = self._newest_row()
        self._tail, self._tail_chars = [], 0
        self.is_open = False
        self.db.close()

    def reopen(self) -> None:
        """Open the file again, and read what another process has changed in it.

        Raises as the constructor.
        """
        self.db = file.open_to_write(self.path)
        try:
            if self._newest_row() != self._last_row:
                self._begun, self._reported_s, self._written = False, float("-inf"), ()
                self._resume_index, self._dormant = ResumeIndex(), False
                self._resume()
            elif self._begun:
                file.begin(self.db)
        except BaseException:
            self.db.close()
            raise
        self.is_open = True

    def close(self) -> None:
        """Leave one file alone, that can be opened where nothing can be written."""
        if not self.is_open:
            return
        self.is_open = False
        if self._begun:
            with suppress(sqlite3.Error):
                self.db.execute("PRAGMA journal_mode = DELETE")
        self.db.close()

    def _commit(self, summary: RunSummary | None, dropped: int, *, last: bool) -> None:
        if not self._begun:
            file.begin(self.db)
            file.write_fact(self.db, "written_by", __version__)
            self._begun = True
        lines = sorted(self._fresh, key=_moment)
        made: list[tuple[int, list[Line]]] = []
        with _transaction(self.db):
            made = [(self._insert(batch, 3), batch) for batch in _split(lines)]
            self.db.executemany(
                "INSERT INTO markers VALUES (?, ?, ?)",
                [(marker.at_s, marker.kind, marker.text) for marker in self._markers],
            )
            reported = self._running_summary.summary()
            if summary is not None:
                # It is written only periodically; the state of the run is more recent here.
                reported = replace(
                    summary, state=reported.state, ended_s=reported.ended_s, steps=reported.steps
                )
            facts = {"run": to_plain(reported), "told_s": self._reported_s, "dropped": dropped}
            state = (reported, self._reported_s, dropped, last)
            if state != self._written:
                for name, value in facts.items():
                    file.write_fact(self.db, name, value)
                file.write_fact(self.db, "closed", last)
        self._tail += made
        self._tail_chars += sum(len(line) for _, line in lines)
        self._fresh, self._markers, self._written = [], [], state

    def _merge(self) -> None:
        lines = sorted((line for _, batch in self._tail for line in batch), key=_moment)
        with _transaction(self.db):
            self.db.executemany(
                "DELETE FROM batches WHERE id = ?", [(row,) for row, _ in self._tail]
            )
            for batch in _split(lines):
                self._insert(batch, 6)

    def _insert(self, lines: list[Line], level: int) -> int:
        body = file.pack((line for _, line in lines), level)
        row = self.db.execute(
            "INSERT INTO batches (from_s, to_s, events, body) VALUES (?, ?, ?, ?)",
            (lines[0][0], lines[-1][0], len(lines), body),
        ).lastrowid
        assert row is not None
        return row

    def _newest_row(self) -> int | None:
        row: int | None = self.db.execute("SELECT max(id) FROM batches").fetchone()[0]
        return row

    # -- resuming a file

    def _resume(self) -> None:
        facts, _ = file.facts(self.db)
        reported_s = facts.get("told_s")
        if not isinstance(reported_s, (int, float)):
            return
        self._reported_s = float(reported_s)
        self._resume_index = ResumeIndex.of(self.db, self._reported_s)
        with suppress(CodecError):
            before = from_plain(RunSummary, facts.get("run"))
            self._running_summary = _summary_of(before)
            self._dormant = before.state.is_over


def _split(lines: list[Line]) -> Iterator[list[Line]]:
    begin = chars = 0
    for number, (_, line) in enumerate(lines, 1):
        chars += len(line)
        if chars >= BATCH_CHARS or number == len(lines):
            yield lines[begin:number]
            begin, chars = number, 0


def _summary_of(summary: RunSummary) -> RunningSummary:
    """Restore its totals; the medians start again."""
    return RunningSummary(
        run_id=summary.run_id,
        name=summary.name,
        state=summary.state,
        # Its RunSeen may be in the file, and is not taken in again.
        submission=summary.submission_id,
        entrypoint="" if summary.job == summary.name else summary.job,
        world_size=summary.world_size,
        started_s=summary.started_s,
        ended_s=summary.ended_s,
        attempts=summary.attempts,
        steps=summary.steps,
        loss=summary.loss,
        gpus=summary.gpus,
        cluster=summary.cluster,
        _running=summary.state is RunState.RUNNING,
        _stepped=summary.step_time_s is not None,
    )


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        # SQLite may already have rolled back after a full disk.
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _moment(line: Line) -> float:
    return line[0]
