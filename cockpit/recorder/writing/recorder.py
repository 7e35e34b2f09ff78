"""The recorder of one run: events into its file, by a thread that all recorders share."""

from __future__ import annotations

import errno
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from cockpit.config import paths
from cockpit.model.clock import server_time
from cockpit.model.error import CockpitError
from cockpit.model.event import Event, RunSeen
from cockpit.model.run import RunSummary
from cockpit.recorder import file
from cockpit.recorder.codec import CodecError, from_plain
from cockpit.recorder.file import LOCK_TRIES, Lock, LockedError
from cockpit.recorder.writing.event_filter import EventFilter
from cockpit.recorder.writing.recorder_thread import RecorderThread, weight_of
from cockpit.recorder.writing.resume_index import Waiting, with_joined_logs
from cockpit.recorder.writing.writer import Writer

RETRY_EVERY_S = 5.0
OTHERS_LAG_S = 15.0
"""While another cockpit records the run, events wait this long: if it is killed, its last ones are
not in the file."""

OnMessage = Callable[[str], None]

log = logging.getLogger(__name__)


class Recorder:
    """Record events from any thread, without blocking the caller.

    Events that the disk does not accept in time wait in memory. Beyond a limit that all recorders
    of a thread share (`recorder_thread.WEIGHT_AT_MOST`) they are dropped and counted. A full disk
    is reported once and retried. A file that cannot be written is reported once and closed:
    `trouble` has the message. While another cockpit records the run, that is the trouble; when the
    other one has ended, this one continues.

    `run_id` is the run to record; without one, the first in the stream. An existing file of the run
    is continued without duplicates.
    """

    def __init__(
        self,
        path: Path,
        *,
        run_id: str = "",
        clock: Callable[[], float] = server_time,
        on_message: OnMessage | None = None,
        thread: RecorderThread | None = None,
        only_continue: bool = False,
    ) -> None:
        """`thread`: the writer; by default a new one.

        `only_continue`: write nothing unless the file exists and its run is not over.
        """
        self.path = path
        self.trouble = ""
        self.dropped = 0
        """Events that were lost because the disk was too slow, or full."""
        self._clock, self._on_message = clock, on_message
        self._run_id, self._run = run_id, path.stem
        """The run's id, and its name once that is known, for messages."""
        self._only_continue = only_continue
        self._filter = EventFilter(run_id)
        self._inbox: deque[Waiting] = deque()
        self._summary: RunSummary | None = None
        self._over = False
        self._given_up = self._faulty = self._is_locked_out = False
        self._ended = threading.Event()
        self._next_try_s = 0.0
        self._uncommitted_weight = 0
        self._reported_lost = 0
        self._lock = Lock(path)
        self._writer: Writer | None = None
        self._thread = thread or RecorderThread()
        self._thread.add(self)

    def take(self, event: Event, *, when_s: float | None = None) -> None:
        """Record it. `when_s`: the moment that it belongs to, where not its own `at_s`."""
        if self._over or self._given_up:
            return
        if isinstance(event, RunSeen) and event.run_id == self._run_id and event.name:
            self._run = event.name
        if not self._thread.reserve(weight_of(event)):
            self.dropped += 1
            return
        now_s = self._clock()
        moment_s = min(event.at_s, now_s) if when_s is None else when_s
        self._inbox.append((event, moment_s, now_s))

    def summarise(self, summary: RunSummary) -> None:
        """Store this summary of the run in place of what the recorder itself can derive."""
        self._summary = summary
        self._thread.wake()

    def finish(self) -> None:
        """Write what is there and end, without waiting for it."""
        self._over = True
        self._thread.wake()

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what is queued, and wait for that."""
        self.finish()
        self._ended.wait(timeout_s)

    @property
    def going(self) -> bool:
        """Whether it still writes, or will when the disk has room."""
        return not self._ended.is_set()

    # -- called by the recorder thread

    @property
    def is_open(self) -> bool:
        """Whether it holds file descriptors now."""
        return self._writer is not None and self._writer.is_open

    @property
    def is_over(self) -> bool:
        return self._over

    @property
    def is_due(self) -> bool:
        """Whether there is something to do: a first opening, events, the end, a merge."""
        if self._over or self.is_open:
            return True
        waits = time.monotonic() < self._next_try_s
        return not waits and (self._writer is None or bool(self._inbox))

    def write(self) -> None:
        """Write the events since the last call; at the end, close the file."""
        last = self._over
        if time.monotonic() < self._next_try_s and not last:
            return
        try:
            self._write(last=last)
            self._next_try_s = 0.0
        except LockedError:
            self._lock_out(last=last)
        except CockpitError as error:
            self._give_up(" ".join(str(error).split("\n")[:2]))
        except (OSError, sqlite3.Error) as error:
            if last or not _passes(error):
                self._give_up(str(error))
            else:
                self._report_trouble(f"{error}; it continues when that is over")
                self._next_try_s = time.monotonic() + RETRY_EVERY_S
        if last or self._given_up:
            self._end()

    def fail(self) -> None:
        """End it after an unexpected error."""
        self._give_up("a fault in cockpit itself; its log has the details")
        self._end()

    def suspend(self) -> None:
        """Close the file until the next `write`; its lock keeps this process as its owner."""
        if self._writer is not None and self._writer.is_open:
            try:
                self._writer.suspend()
            except sqlite3.Error as error:
                self._report_trouble(f"{error}; it continues when that is over")
                self._writer.close()
            self._lock.suspend()

    def _write(self, *, last: bool) -> None:
        if self._writer is None and self._only_continue and not _is_unfinished(self.path):
            self._drop()
            return
        writer = self._opened()
        if self._is_locked_out:
            self._is_locked_out = False
            waiting = [self._inbox.popleft() for _ in range(len(self._inbox))]
            joined = with_joined_logs(waiting)
            self._inbox.extendleft(reversed(joined))
            self._thread.release(_weight(waiting) - _weight(joined))
        while self._inbox:
            event, when_s, taken_s = self._inbox.popleft()
            self._uncommitted_weight += weight_of(event)
            self._put(writer, self._filter.kept(event, taken_s), when_s)
        if last:
            self._put(writer, self._filter.rest(), None)
        writer.commit(self._summary, self.dropped, last=last)
        self._release()
        self._report_lost()
        if self.trouble:
            lost = f"; {self.dropped} events were lost" if self.dropped else ""
            self.trouble = ""
            if self._on_message is not None:
                self._on_message(f"The recording of run {self._run} continues{lost}.")

    def _opened(self) -> Writer:
        if self._writer is None:
            paths.make_private(self.path.parent)
            self._take_lock()
            self._writer = Writer(self.path)
        elif not self._writer.is_open:
            self._take_lock()
            self._writer.reopen()
        return self._writer

    def _take_lock(self) -> None:
        self._lock.take(1 if self._is_locked_out else LOCK_TRIES)

    def _lock_out(self, *, last: bool) -> None:
        """Wait for the end of the other recorder, unless this is the `last` write."""
        why = "another cockpit is recording it already"
        if last:
            self._give_up(why)
            return
        self._report_trouble(why)
        self._is_locked_out = True
        self._next_try_s = time.monotonic() + RETRY_EVERY_S
        now_s = self._clock()
        while self._inbox and abs(now_s - self._inbox[0][2]) > OTHERS_LAG_S:
            event, _, taken_s = self._inbox.popleft()
            # The file has it; the filter learns the job of the run, and each state.
            self._put(None, self._filter.kept(event, taken_s), None)
            self._thread.release(weight_of(event))

    def _end(self) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
            self._lock.release()
        finally:
            self._drop()
            self._ended.set()

    def _drop(self) -> None:
        while self._inbox:
            self._uncommitted_weight += weight_of(self._inbox.popleft()[0])
        self._release()

    def _release(self) -> None:
        """Only what is on disk makes room: what a full disk refused still waits in memory."""
        self._thread.release(self._uncommitted_weight)
        self._uncommitted_weight = 0

    def _report_lost(self) -> None:
        """That the disk is too slow; again only when ten times as much is lost."""
        if self.dropped > self._reported_lost and not self.trouble and self._on_message is not None:
            self._reported_lost = 10 * self.dropped
            self._on_message(f"The recording of run {self._run} lost {self.dropped} events.")

    def _put(self, writer: Writer | None, events: Iterator[Event], when_s: float | None) -> None:
        """`writer`: None to forget them."""
        try:
            for event in events:
                moment_s = min(event.at_s, self._clock()) if when_s is None else when_s
                if writer is not None:
                    writer.put(event, moment_s)
        except (AttributeError, TypeError, ValueError):
            # One event that does not match the model must not lose those that follow it.
            self.dropped += 1
            if not self._faulty:
                self._faulty = True
                log.exception("an event cannot be recorded")

    def _give_up(self, why: str) -> None:
        self._given_up = True
        self._report_trouble(why)

    def _report_trouble(self, why: str) -> None:
        """Report each trouble once."""
        if why != self.trouble:
            self.trouble = why
            if self._on_message is not None:
                self._on_message(f"Run {self._run} is not being recorded: {why}.")


def _weight(waiting: Iterable[Waiting]) -> int:
    return sum(weight_of(event) for event, _, _ in waiting)


def _is_unfinished(path: Path) -> bool:
    """Whether the file has a run that was not over when its recorder ended."""
    if not path.exists():
        return False
    db = file.open_to_read(path)
    try:
        run: RunSummary = from_plain(RunSummary, file.facts(db)[0].get("run"))
    except CodecError:
        return True
    finally:
        db.close()
    return not run.state.is_over


def _passes(error: Exception) -> bool:
    """Whether the error may be temporary: a full disk, or the lock of a reader."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorcode & 0xFF in (
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_NOMEM,
        )
    return isinstance(error, OSError) and error.errno in (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
    )
