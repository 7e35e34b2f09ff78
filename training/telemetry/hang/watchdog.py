"""A thread of each rank that detects late progress, and then sends the rank's state.

Progress is a step, a report, a checkpoint or the call of a collective. Once a second the watchdog
compares a few counters; it takes stacks and torch's flight recorder only when progress is late:

    first dump   after the longer of 10 s and 3 times the usual time between two instants of it
    second dump  at the bound: the longer of 20 s and 5 times the usual time
    later ones   after 8 s, 15 s, then every 30 s to 2 minutes; and when a rank that was busy in its
                 last dump is no longer, as one that waits for a data loader's process that starts

Until the pace is known, the first dump comes after 30 s and the bound is 120 s.
"""

from __future__ import annotations

import logging
import resource
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from training.process_stat import cpu_s
from training.telemetry.hang import flight_recorder
from training.telemetry.hang.stacks import stacks
from training.telemetry.wire import (
    BUSY_CPU_PERCENT,
    BUSY_IO_BYTES_PER_S,
    HEARTBEAT,
    HEARTBEAT_S,
    PROGRESS,
    Dump,
    Hang,
)

log = logging.getLogger(__name__)

FEWEST = 3
"""Instants of progress from which a pace is known, as in cockpit.insight.metrics.stall."""
FIRST_TIMES, BOUND_TIMES, SLOW_TIMES, SLOW_LONGEST_TIMES = 3.0, 5.0, 6.0, 2.0
"""Multiples of the usual time between two instants of progress, and of the longest."""
_RECENT = 60


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds without progress, and between two checks."""

    poll_s: float = 1.0
    first_s: float = 10.0
    bound_s: float = 20.0
    slow_bound_s: float = 120.0
    """For a busy rank."""
    unknown_first_s: float = 30.0
    unknown_bound_s: float = 120.0
    unknown_slow_bound_s: float = 600.0
    """Until the pace is known."""
    pauses_s: tuple[float, ...] = (8.0, 15.0, 30.0, 30.0, 30.0, 60.0, 120.0)
    """Between the dumps after the second; the last applies to all later ones."""
    usage_s: float = 8.0
    """The window over which CPU and I/O are measured."""
    heartbeat_s: float = HEARTBEAT_S


class Pace:
    """The time between two instants of progress, and the derived limits."""

    def __init__(self, now_s: float, times: Times = Times()) -> None:
        self._last_s, self._times = now_s, times
        self._gaps: deque[float] = deque(maxlen=_RECENT)
        self.longest_s = 0.0
        self._seen = 0

    def progress(self, now_s: float) -> None:
        if self._seen:  # what comes before the first is the start
            self._gaps.append(now_s - self._last_s)
            self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._seen += 1
        self._last_s = now_s

    def idle_s(self, now_s: float) -> float:
        return now_s - self._last_s

    @property
    def usual_s(self) -> float | None:
        return median(self._gaps) if self._seen >= FEWEST else None

    @property
    def first_s(self) -> float:
        times, usual_s = self._times, self.usual_s
        if usual_s is None:
            return times.unknown_first_s
        return max(times.first_s, FIRST_TIMES * usual_s)

    @property
    def bound_s(self) -> float:
        times, usual_s = self._times, self.usual_s
        if usual_s is None:
            return times.unknown_bound_s
        return max(times.bound_s, BOUND_TIMES * usual_s)

    @property
    def slow_bound_s(self) -> float:
        times, usual_s = self._times, self.usual_s
        if usual_s is None:
            return times.unknown_slow_bound_s
        longest_s = SLOW_LONGEST_TIMES * self.longest_s
        return max(times.slow_bound_s, SLOW_TIMES * usual_s, longest_s)


class Watchdog:
    """`progress` returns a value that changes with progress; `emit` sends without waiting.

    A rank that sends no heartbeat is stopped, or its process cannot run Python.
    """

    def __init__(
        self,
        run: str,
        rank: int,
        attempt: int,
        progress: Callable[[], object],
        emit: Callable[[Hang], None],
        owner: Callable[[], int | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        times: Times = Times(),
    ) -> None:
        self._run, self._rank, self._attempt = run, rank, attempt
        self._progress, self._emit, self._owner, self._clock = progress, emit, owner, clock
        self._pace, self._times = Pace(clock(), times), times
        self._state: object = (progress(), flight_recorder.called())
        self._dumps = 0
        self._next_s = 0.0
        """Of `idle_s`: when the next dump is due."""
        self._usage: deque[tuple[float, float, float, float]] = deque(
            maxlen=round(times.usage_s / times.poll_s) + 1
        )
        """While progress is late: when, seconds of CPU, bytes of I/O, and major page faults."""
        self._was_busy = False
        """In its last dump, of those from the bound on."""
        self._sent_s: float | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="telemetry-hang", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._end.set()

    def poll(self) -> None:
        now_s, state = self._clock(), (self._progress(), flight_recorder.called())
        if state != self._state:
            self._state = state
            self._pace.progress(now_s)
            if self._dumps:
                self._send(PROGRESS)
            self._dumps, self._next_s, self._was_busy = 0, self._pace.first_s, False
            self._usage.clear()
        idle_s = self._pace.idle_s(now_s)
        due_s = self._next_s or self._pace.first_s
        if self._was_busy or idle_s >= max(due_s - self._times.usage_s, due_s / 2):
            self._usage.append((now_s, *_usage()))
        if idle_s >= due_s or (self._was_busy and not self._is_busy()):
            self._dump(idle_s)
        elif self._sent_s is None or now_s - self._sent_s >= self._times.heartbeat_s:
            self._send(HEARTBEAT)

    def _dump(self, idle_s: float) -> None:
        self._dumps += 1
        pauses_s = self._times.pauses_s
        pause_s = pauses_s[min(max(0, self._dumps - 2), len(pauses_s) - 1)]
        self._next_s = self._pace.bound_s if self._dumps == 1 else idle_s + pause_s
        cpu_percent, io_bytes_per_s, major_faults_per_s = self._used()
        self._was_busy = self._dumps > 1 and self._is_busy()
        groups, reached, collectives, missing = flight_recorder.read()
        threads, found = stacks(self._owner())
        dump = Dump(
            rank=self._rank,
            attempt=self._attempt,
            t=time.time(),
            number=self._dumps,
            idle_s=idle_s,
            usual_s=self._pace.usual_s,
            longest_s=self._pace.longest_s,
            bound_s=self._pace.bound_s,
            slow_bound_s=self._pace.slow_bound_s,
            cpu_percent=cpu_percent,
            io_bytes_per_s=io_bytes_per_s,
            major_faults_per_s=major_faults_per_s,
            swapped_bytes=_swapped_bytes(),
            missing=missing,
            threads=threads,
            reached=reached,
            collectives=collectives,
        )
        record = Hang(
            run=self._run, attempt=self._attempt, dumps=(dump,), stacks=found, groups=groups
        )
        self._sent_s = self._clock()
        self._emit(record)

    def _used(self) -> tuple[float | None, float | None, float | None]:
        if len(self._usage) < 2:
            return None, None, None
        began_s, _, io, faults = self._usage[0]
        now_s, _, io_now, faults_now = self._usage[-1]
        elapsed_s = max(self._times.poll_s / 2, now_s - began_s)
        # The time of a child that has ended since is no longer part of the sum.
        cpu_s = sum(max(0.0, after[1] - before[1]) for before, after in pairwise(self._usage))
        used = (100 * cpu_s, io_now - io, faults_now - faults)
        return used[0] / elapsed_s, used[1] / elapsed_s, used[2] / elapsed_s

    def _is_busy(self) -> bool:
        """Over the last `usage_s`."""
        cpu_percent, io_bytes_per_s, _ = self._used()
        is_busy = (cpu_percent or 0.0) >= BUSY_CPU_PERCENT
        return is_busy or (io_bytes_per_s or 0.0) >= BUSY_IO_BYTES_PER_S

    def _send(self, number: int) -> None:
        self._sent_s = self._clock()
        dump = Dump(rank=self._rank, attempt=self._attempt, t=time.time(), number=number)
        self._emit(Hang(run=self._run, attempt=self._attempt, dumps=(dump,)))

    def _loop(self) -> None:
        while not self._end.wait(self._times.poll_s):
            try:
                self.poll()
            except Exception:
                log.warning("telemetry: the watchdog failed; training continues", exc_info=True)
                return


def _swapped_bytes() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in (
            Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        ):
            if line.startswith("VmSwap:"):
                return int(line.split()[1]) * 1024
    return None


def _usage() -> tuple[float, float, float]:
    """Return the seconds of CPU of this process and its children, the bytes of its I/O, and the
    pages that were read back from a disk for it.
    """
    own = resource.getrusage(resource.RUSAGE_SELF)
    used_s = own.ru_utime + own.ru_stime
    with suppress(OSError, ValueError, IndexError):
        for task in Path("/proc/self/task").iterdir():
            for child in (task / "children").read_text(encoding="ascii").split():
                used_s += cpu_s(child)
    io_bytes = 0.0
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
        io_bytes = float(sum(int(line.split()[1]) for line in lines[:2]))
    return used_s, io_bytes, float(own.ru_majflt)
