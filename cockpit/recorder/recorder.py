"""The recorder: a run's events into its file, by a thread of its own."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from cockpit import paths
from cockpit.model.error import CockpitError
from cockpit.model.event import (
    AttemptStarted,
    Event,
    JobsListed,
    LogLines,
    NodesListed,
    PodsListed,
    RankSampled,
    TrialsListed,
)
from cockpit.model.summary import RunSummary
from cockpit.recorder.event_filter import EventFilter
from cockpit.recorder.lock import Held, Lock
from cockpit.recorder.writer import Writer

COMMIT_EVERY_S = 1.0
RETRY_EVERY_S = 5.0
WEIGHT_AT_MOST = 100_000
"""Rank samples, or what is about as large, that may wait for the disk: some 40 MB."""

Told = Callable[[str], None]

log = logging.getLogger(__name__)


class Recorder:
    """Takes events from any thread and never keeps the caller waiting.

    What the disk does not take in time waits in memory, and beyond WEIGHT_AT_MOST it is dropped
    and counted. A disk that is full is told once, and tried again. A file that cannot be written at
    all is told once and then let be: `trouble` has the sentence.

    `run_id` is the run to record; without one it is the first that is seen. An existing file of the
    run is continued: what it has already is not written again.
    """

    def __init__(
        self,
        path: Path,
        *,
        run_id: str = "",
        clock: Callable[[], float] = time.time,
        told: Told | None = None,
    ) -> None:
        self.path = path
        self.trouble = ""
        self.dropped = 0
        """Events that were lost because the disk was too slow, or full."""
        self._clock, self._told = clock, told
        self._filter = EventFilter(run_id)
        self._inbox: deque[tuple[Event, float, float]] = deque()
        """Each event with its moment, and when it was taken."""
        self._weight = 0
        self._summary: RunSummary | None = None
        self._over = False
        self._given_up = self._faulty = False
        self._wake = threading.Event()
        self._counting = threading.Lock()
        self._told_lost = 0
        self._writer: Writer | None = None
        self._thread = threading.Thread(target=self._run, name="cockpit-recorder", daemon=True)
        self._thread.start()

    def take(self, event: Event, *, when_s: float | None = None) -> None:
        """Record it. `when_s`: the moment that it belongs to, where not its own `at_s`."""
        if self._over or self._given_up:
            return
        weight = _weight(event)
        with self._counting:
            if self._weight + weight > WEIGHT_AT_MOST:
                self.dropped += 1
                return
            self._weight += weight
            now_s = self._clock()
            moment_s = min(event.at_s, now_s) if when_s is None else when_s
            self._inbox.append((event, moment_s, now_s))

    def summarise(self, summary: RunSummary) -> None:
        """What the file says of the run, in place of what the recorder itself can tell."""
        self._summary = summary
        self._wake.set()

    def finish(self) -> None:
        """Write what is there and end, without waiting for it."""
        self._over = True
        self._wake.set()

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what is there, and wait for that."""
        self.finish()
        self._thread.join(timeout_s)

    @property
    def going(self) -> bool:
        """Whether it still writes, or will when the disk has room."""
        return self._thread.is_alive() and not self._given_up

    def _run(self) -> None:
        lock = Lock(self.path)
        try:
            self._write(lock)
        except Held:
            self._give_up("another cockpit is recording it already")
        except CockpitError as error:
            self._give_up(" ".join(str(error).split("\n")[:2]))
        except (OSError, sqlite3.Error) as error:
            self._give_up(str(error))
        finally:
            if self._writer is not None:
                self._writer.close()
            lock.release()

    def _write(self, lock: Lock) -> None:
        next_try = 0.0
        while True:
            over = self._over
            if not over:
                self._wake.wait(COMMIT_EVERY_S)
                self._wake.clear()
            over = over or self._over
            if time.monotonic() >= next_try or over:
                try:
                    self._once(lock, last=over)
                    next_try = 0.0
                except (OSError, sqlite3.OperationalError) as error:
                    if over or not _passes(error):
                        raise
                    self._tell(f"{error}; it goes on when that is over")
                    next_try = time.monotonic() + RETRY_EVERY_S
            if over:
                return

    def _once(self, lock: Lock, *, last: bool) -> None:
        if self._writer is None:
            paths.make_private(self.path.parent)
            lock.take()
            self._writer = Writer(self.path)
        writer = self._writer
        while self._inbox:
            event, when_s, taken_s = self._inbox.popleft()
            with self._counting:
                self._weight -= _weight(event)
            self._put(writer, self._filter.kept(event, taken_s), when_s)
        if last:
            self._put(writer, self._filter.rest(), None)
        writer.commit(self._summary, self.dropped, last=last)
        self._tell_lost()
        if self.trouble:
            lost = f"; {self.dropped} events were lost" if self.dropped else ""
            self.trouble = ""
            if self._told is not None:
                self._told(f"The recording of {self.path.stem} goes on{lost}.")

    def _tell_lost(self) -> None:
        """That the disk is too slow; again only when ten times as much is lost."""
        if self.dropped > self._told_lost and not self.trouble and self._told is not None:
            self._told_lost = 10 * self.dropped
            self._told(f"The recording of {self.path.stem} has lost {self.dropped} events.")

    def _put(self, writer: Writer, events: Iterator[Event], when_s: float | None) -> None:
        try:
            for event in events:
                writer.put(event, min(event.at_s, self._clock()) if when_s is None else when_s)
        except (AttributeError, TypeError, ValueError):
            # One event that is not as the model says must not cost those that follow it.
            self.dropped += 1
            if not self._faulty:
                self._faulty = True
                log.exception("an event cannot be recorded")

    def _give_up(self, why: str) -> None:
        self._given_up = True
        self._tell(why)
        self._inbox.clear()

    def _tell(self, why: str) -> None:
        """Once for each trouble."""
        if why != self.trouble:
            self.trouble = why
            if self._told is not None:
                self._told(f"{self.path.stem} is not being recorded: {why}.")


def _passes(error: Exception) -> bool:
    """Whether it may be over by itself: no room, or a lock that a reader holds."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorcode & 0xFF in (
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_NOMEM,
        )
    import errno

    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def _weight(event: Event) -> int:
    """How much it holds, in rank samples."""
    match event:
        case RankSampled():
            return 1 + len(event.samples)
        case LogLines():
            return 1 + len(event.lines) // 4
        case PodsListed():
            return 1 + len(event.pods)
        case NodesListed():
            return 1 + len(event.nodes)
        case JobsListed():
            return 1 + len(event.jobs)
        case AttemptStarted():
            return 1 + len(event.placements)
        case TrialsListed():
            return 1 + len(event.trials)
    return 1
