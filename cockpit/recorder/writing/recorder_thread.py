"""The thread that writes all recordings of a session, with few files open at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

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

COMMIT_EVERY_S = 1.0
OPEN_FILES = 16
"""Recordings that are open at a time: 4 descriptors each (database, -wal, -shm and lock)."""
OPENED_IN_A_TURN = 8
"""With more runs than OPEN_FILES, this many files are opened each second, longest waiting first."""
WEIGHT_AT_MOST = 100_000
"""Rank samples, or events of similar size, that may wait for the disk: about 40 MB."""

log = logging.getLogger(__name__)


class Writing(Protocol):
    """The part of a `Recorder` that the thread uses."""

    @property
    def going(self) -> bool: ...
    @property
    def is_due(self) -> bool: ...
    @property
    def is_over(self) -> bool: ...
    @property
    def is_open(self) -> bool: ...
    def write(self) -> None: ...
    def fail(self) -> None: ...
    def suspend(self) -> None: ...


class RecorderThread:
    """Calls `write` of its recorders once a second. Runs only while it has recorders or work."""

    def __init__(self) -> None:
        self._recorders: dict[Writing, None] = {}
        """Least recently written first."""
        self._work: list[Callable[[], None]] = []
        self._weight = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, recorder: Writing) -> None:
        with self._lock:
            self._recorders[recorder] = None
            self._start()

    def call(self, work: Callable[[], None]) -> None:
        """Run `work` on the thread, between its writes."""
        with self._lock:
            self._work.append(work)
            self._start()
        self._wake.set()

    def wake(self) -> None:
        """Write now rather than at the end of the second."""
        self._wake.set()

    def reserve(self, weight: int) -> bool:
        """Return whether an event of this weight may wait for the disk."""
        with self._lock:
            if self._weight + weight > WEIGHT_AT_MOST:
                return False
            self._weight += weight
            return True

    def release(self, weight: int) -> None:
        with self._lock:
            self._weight -= weight

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="cockpit-recorder", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            self._wake.wait(COMMIT_EVERY_S)
            self._wake.clear()
            with self._lock:
                work, self._work = self._work, []
            for each in work:
                _guarded(each)
            self._write()
            with self._lock:
                if not self._recorders and not self._work:
                    self._thread = None
                    return

    def _write(self) -> None:
        with self._lock:
            due = [recorder for recorder in self._recorders if recorder.is_due]
        # Ending recorders first: the next recorder may use the same file.
        ending = [recorder for recorder in due if recorder.is_over]
        going = [recorder for recorder in due if not recorder.is_over]
        opened = [recorder for recorder in going if recorder.is_open]
        waiting = [recorder for recorder in going if not recorder.is_open]
        for recorder in ending:
            self._write_one(recorder)
        for recorder in opened:
            self._write_one(recorder)
        left = OPENED_IN_A_TURN
        for recorder in waiting:
            if not left:
                break
            while len(opened) >= OPEN_FILES:
                opened.pop(0).suspend()
            self._write_one(recorder)
            if recorder.is_open:  # not one whose run another cockpit records
                opened.append(recorder)
                left -= 1

    def _write_one(self, recorder: Writing) -> None:
        if not _guarded(recorder.write):
            _guarded(recorder.fail)
        with self._lock:
            del self._recorders[recorder]
            if recorder.going:
                self._recorders[recorder] = None


def _guarded(act: Callable[[], None]) -> bool:
    """Call it; one recorder's fault must not end the others'."""
    try:
        act()
    except Exception:
        log.exception("the recorder thread caught an error")
        return False
    return True


def weight_of(event: Event) -> int:
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
