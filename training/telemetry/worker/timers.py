"""Times of the sections of a step: on a GPU by the device's clock, without waiting for it.

The training thread only records each border of a section: after a step its caches contain the
step's data, and every line of telemetry code that it runs waits for memory. Another thread reads
the borders later. Without CUDA a border is a reading of the host's clock. With CUDA it is also an
event on the current stream, which the device timestamps when it gets there; the other thread reads
the available timestamps.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from threading import get_ident
from typing import Any, Final

from training.telemetry.worker import cuda
from training.telemetry.worker.section_times import (
    CONTINUES,
    DEVICE,
    ENTRIES,
    HOST,
    LOST,
    NAMES,
    OTHER_THREAD,
    STEP_VALUES,
    Ended,
    Mark,
    SectionClock,
)

log = logging.getLogger(__name__)

BLOCKING: Final = "checkpoint"
"""Timed by the host's clock on a GPU too, in total and not per step: it blocks the whole loop."""

EVENTS = 1024
"""The maximum number of CUDA events, which are reused. While none is free, steps are not timed:
with one read a second, this limits the sections of a second.
"""

FULL = 4096 * ENTRIES
"""With this many unread entries the training thread reads them itself: with one read a second, at
300 steps of six sections a second.
"""


class Section:
    """A context manager that can be used repeatedly; created once for each name."""

    __slots__ = ("_left", "_name", "_sections")

    def __init__(self, name: str, sections: Sections) -> None:
        self._name, self._left, self._sections = name, f"/{name}", sections

    def __enter__(self) -> None:
        sections = self._sections
        if get_ident() == sections.owner or sections.claim():
            mark = sections.mark
            written = sections.written
            # In one operation, so that a reader on another thread never sees half a border.
            written += (self._name, sections.clock(), None if mark is None else mark(1))
            if len(written) > FULL:
                sections.make_room()

    def __exit__(self, kind: object = None, error: object = None, trace: object = None) -> None:
        sections = self._sections
        if get_ident() == sections.owner:
            mark = sections.mark
            written = sections.written
            written += (self._left, sections.clock(), None if mark is None else mark(-1))


class Sections:
    """The sections of one rank. Call `take` on another thread than the rest.

    Sections count on the thread that calls `end_step`; those of other threads are ignored, since
    what runs at the same time is not a share of a step.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        device: Callable[[], cuda.Device | None] = cuda.device,
    ) -> None:
        self.clock, self._find = clock, device
        self.by_name = {name: Section(name, self) for name in NAMES}
        self.written: list[Any] = []
        """Used by the training thread without a lock: it appends, a reader removes what it has
        read. Each is one operation of the list, which Python does not interrupt.
        """
        self.owner: int | None = None
        self.mark: Callable[[int], cuda.Event | None] | None = None
        """On a GPU: record an event on the current stream; the argument is the change of open
        sections.
        """
        self.needs_more = True
        """Whether `end_step` has more to do than to record the end of a step."""
        self.on_step_end: Callable[[float, Any], None] | None = None
        """Called with the clock at the end of a step and its values. Must not raise."""
        self._lock = threading.Lock()
        """Of the read data; the training thread never waits for a holder that queries the device.
        """
        self._borders = SectionClock()
        self._has_begun = False
        """Whether a step has ended: what comes before it, imports and warm-up, is not timed."""
        self._device: cuda.Device | None = None
        self._is_broken = False
        self._free: deque[cuda.Event] = deque()
        self._made = 0
        self._is_marking = False
        self._marked = 0
        """Of the current step."""
        self._needed = 0
        """Events of the last step that has some."""
        self._inside = 0
        """The number of open sections, on a GPU; too high if one was never closed."""
        self._pending: deque[list[Mark]] = deque()
        self._blocked_s: float | None = None
        self._sums_s: dict[str, float] = {}
        self._steps = 0

    def claim(self) -> bool:
        """Before the first step, the first thread counts."""
        if self.owner is not None:
            return False
        self.owner = get_ident()
        return True

    def end_step(self, step_values: Any = None) -> None:
        """Start the next step, with the open sections; pass `step_values` to `on_step_end`."""
        caller, now = get_ident(), self.clock()
        if caller != self.owner:
            self.owner = caller
            self.written += (OTHER_THREAD, now, None)
        if self._device is None and not self._is_broken:
            self.written += (HOST, now, step_values)
        else:
            event = self._mark(0)
            self.written += (
                STEP_VALUES,
                now,
                step_values,
                DEVICE if self._is_marking else LOST,
                now,
                event,
            )
            if self._is_marking:
                self._needed = self._marked
        if self.needs_more:
            self._begin_marks()
            self.needs_more = self._device is not None or self._is_broken
        if len(self.written) > FULL:
            self.make_room()

    def make_room(self) -> None:
        """Unless another thread does so. In a forked child that may be the case forever."""
        if self._lock.acquire(blocking=False):
            try:
                self._read()
            finally:
                self._lock.release()

    def read(self) -> None:
        """The recorded entries. Never waits for the device."""
        with self._lock:
            self._read()

    def take(self) -> dict[str, float]:
        """Seconds by section since the last take: the mean over its steps, for BLOCKING the total.

        A section that was not entered is missing, as is one that the device has not completed.
        """
        self.read()
        self._read_stamps()
        self.needs_more = True  # CUDA may be in use now, or another thread execute the steps
        with self._lock:
            blocked_s, self._blocked_s = self._blocked_s, None
            sums_s, steps = self._sums_s, self._steps
            self._sums_s, self._steps = {}, 0
        found = {name: took / steps for name, took in sums_s.items()} if steps else {}
        return found if blocked_s is None else found | {BLOCKING: blocked_s}

    def _begin_marks(self) -> None:
        if self._is_broken:
            return
        try:
            if self._device is None:
                self._device = self._find()
                if self._device is not None:
                    self.read()
                    self._inside, self.mark = len(self._borders.open), self._mark
        except Exception:
            self._break()
            log.warning(
                "telemetry: no section is timed any more: its device was not found", exc_info=True
            )
        if self._device is None:
            return
        self._marked = 0
        self._is_marking = len(self._free) + EVENTS - self._made >= max(2, self._needed)
        if self._inside:
            self.written += (CONTINUES, self.clock(), self._mark(0))

    def _mark(self, more: int) -> cuda.Event | None:
        """None if the step is not timed. Its events are free again after they are read."""
        self._inside = max(0, self._inside + more)
        device = self._device
        if not self._is_marking or device is None:
            return None
        try:
            if device.is_capturing():
                self._is_marking = False
                return None
            if self._free:
                event = self._free.popleft()
            elif self._made < EVENTS:
                event = device.event()
                self._made += 1
            else:
                self._needed = min(EVENTS, self._marked + 2)
                self._is_marking = False
                return None
            event.record()
            self._marked += 1
            return event
        except Exception:
            self._break()
            log.warning(
                "telemetry: no section is timed any more: an event was not recorded", exc_info=True
            )
            return None

    def _read(self) -> None:
        written = self.written
        size = len(written)
        batch = written[:size]
        del written[:size]
        for ended in self._borders.read(batch):
            self._book(ended)

    def _book(self, ended: Ended) -> None:
        blocked_s = ended.host_s.pop(BLOCKING, None)
        if blocked_s is not None:
            self._blocked_s = (self._blocked_s or 0.0) + blocked_s
        if ended.end == HOST and self._has_begun:
            self._add(ended.host_s)
        elif ended.end == DEVICE and len(ended.marks) > 1:
            self._pending.append(ended.marks)
        else:
            self._free.extend(event for event, _ in ended.marks)
        self._has_begun = True
        if ended.step_values is not None and self.on_step_end is not None:
            self.on_step_end(ended.at_s, ended.step_values)

    def _add(self, took_s: dict[str, float]) -> None:
        self._steps += 1
        for name, passed_s in took_s.items():
            self._sums_s[name] = self._sums_s.get(name, 0.0) + passed_s

    def _read_stamps(self) -> None:
        """The times of steps that the device has completed. No lock is held during that, since a
        call of the driver may be slow.
        """
        if not self._pending or self._device is None:
            return
        read: list[dict[str, float]] = []
        try:
            self._device.enter()
            while self._pending:
                marks = self._pending[0]
                # The newest first; earlier ones may be on other streams.
                if not all(event.query() for event, _ in reversed(marks)):
                    break
                read.append(_by_stamps(marks))
                self._pending.popleft()
                self._free.extend(event for event, _ in marks)
        except Exception:
            if not self._is_broken:
                log.warning(
                    "telemetry: no section is timed any more: an event was not read", exc_info=True
                )
            self._break()
        with self._lock:
            for took_s in read:
                self._add(took_s)

    def _break(self) -> None:
        """Stop using events. The host's clock is no substitute: it times how fast kernels are
        queued.
        """
        self._is_broken, self.needs_more, self._is_marking = True, True, False
        self._device, self.mark = None, None
        self._pending.clear()


def _by_stamps(marks: list[Mark]) -> dict[str, float]:
    """Seconds by section, of events that the device has passed."""
    took_s: dict[str, float] = {}
    for (begin, name), (end, _) in pairwise(marks):
        if name is not None and name != BLOCKING:
            passed_s = max(0.0, begin.elapsed_time(end) / 1000)
            took_s[name] = took_s.get(name, 0.0) + passed_s
    return took_s
