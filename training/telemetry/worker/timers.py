"""Times of the sections of a step: on a GPU by its own clock, without waiting for it.

The training thread writes each border of a section down, and nothing more: after a step its caches
hold the step's data, and every line of ours that it runs waits for memory. Another thread reads the
borders later. Without CUDA a border is the host's clock. With CUDA it is also an event on the
current stream, which the device stamps when it gets there; the other thread reads those stamps that
are there.
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
"""Timed by the host's clock on a GPU too, in total and not per step: it stops the whole loop."""

EVENTS = 1024
"""At most so many CUDA events, used again and again. While none is free, steps go untimed: with a
read a second, that is what a second of sections may cost."""

FULL = 4096 * ENTRIES
"""With so many entries unread the training thread reads them itself: with a read a second, at 300
steps of six sections a second."""


class Section:
    """`with` it, as often as you like; made once by name."""

    __slots__ = ("_left", "_name", "_sections")

    def __init__(self, name: str, sections: Sections) -> None:
        self._name, self._left, self._sections = name, f"/{name}", sections

    def __enter__(self) -> None:
        sections = self._sections
        if get_ident() == sections.owner or sections.claim():
            mark = sections.mark
            written = sections.written
            # At once, so that a reader on another thread never finds half a border.
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
    """Of one rank. `take` runs on another thread than the rest.

    Sections count on the thread that calls `end_step`; those of other threads are left out, since
    what runs at the same time is no share of a step.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        device: Callable[[], cuda.Device | None] = cuda.device,
    ) -> None:
        self.clock, self._find = clock, device
        self.by_name = {name: Section(name, self) for name in NAMES}
        self.written: list[Any] = []
        """By the training thread without a lock: it appends, a reader cuts off what it has read.
        Each is one operation of the list, which Python does not interrupt."""
        self.owner: int | None = None
        self.mark: Callable[[int], cuda.Event | None] | None = None
        """On a GPU: an event on the current stream, told how many sections more are open."""
        self.asks = True
        """`end_step` has more to do than to write the end of a step down."""
        self.on_step_end: Callable[[float, Any], None] | None = None
        """Given the clock at the end of a step and its values. Must not raise."""
        self._lock = threading.Lock()
        """Of what is read; the training thread waits for none that asks the device."""
        self._borders = SectionClock()
        self._has_begun = False
        """A step has ended before: what comes before it, imports and warm-up, is not timed."""
        self._device: cuda.Device | None = None
        self._is_broken = False
        self._free: deque[cuda.Event] = deque()
        self._made = 0
        self._is_marking = False
        self._marked = 0
        """Of the step under way."""
        self._needed = 0
        """Marks of the last step that was marked."""
        self._inside = 0
        """Sections that are open, on a GPU; too many when one was never left."""
        self._pending: deque[list[Mark]] = deque()
        self._blocked_s: float | None = None
        self._sums_s: dict[str, float] = {}
        self._steps = 0

    def claim(self) -> bool:
        """While nobody has stepped, whoever is first counts."""
        if self.owner is not None:
            return False
        self.owner = get_ident()
        return True

    def end_step(self, step_values: Any = None) -> None:
        """Begin the next step, with the open sections; pass `step_values` to `on_step_end`."""
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
        if self.asks:
            self._begin_marks()
            self.asks = self._device is not None or self._is_broken
        if len(self.written) > FULL:
            self.make_room()

    def make_room(self) -> None:
        """Unless another thread is at it. In a forked child that may be for ever."""
        if self._lock.acquire(blocking=False):
            try:
                self._read()
            finally:
                self._lock.release()

    def read(self) -> None:
        """What was written down. Never waits for the device."""
        with self._lock:
            self._read()

    def take(self) -> dict[str, float]:
        """Seconds since the last take by section: the mean over its steps, of BLOCKING the total.

        A section that was not entered is missing, as is one that the device is not done with.
        """
        self.read()
        self._read_stamps()
        self.asks = True  # CUDA may have come into use, or another thread do the steps
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
        """None where the step goes untimed. Its events are free again when it is read."""
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
        """Of the steps that the device has come past. No lock is held meanwhile, since a question
        to the driver may take long."""
        if not self._pending or self._device is None:
            return
        read: list[dict[str, float]] = []
        try:
            self._device.enter()
            while self._pending:
                marks = self._pending[0]
                # The newest first; those before it may be on other streams.
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
        """No more events. The host's clock would not do: it times how fast kernels are queued."""
        self._is_broken, self.asks, self._is_marking = True, True, False
        self._device, self.mark = None, None
        self._pending.clear()


def _by_stamps(marks: list[Mark]) -> dict[str, float]:
    """Seconds by section, of marks that the device has come past."""
    took_s: dict[str, float] = {}
    for (begin, name), (end, _) in pairwise(marks):
        if name is not None and name != BLOCKING:
            passed_s = max(0.0, begin.elapsed_time(end) / 1000)
            took_s[name] = took_s.get(name, 0.0) + passed_s
    return took_s
