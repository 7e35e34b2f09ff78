"""Replay a recording: at any speed, paused, forward and backward.

A player owns the store that it fills. `advance` follows the wall clock and takes a bounded time, so
that the UI is not blocked during a long seek. It saves a keyframe for each third of a second of
work, so that a seek backward is fast.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from cockpit.recorder.reading.recording import Recording, Timed
from cockpit.recorder.writing.running_summary import Marker
from cockpit.store.series import Bookmark, Curves, Series
from cockpit.store.store import Store

SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 1_000.0)
KEYFRAME_WORK_S = 0.33
"""A seek backward costs at most this work, plus the keyframe."""
KEYFRAMES_KEPT = 128
KEYFRAME_BYTES = 300_000_000
"""Of the curves that they keep alive; an hour of 1,000 ranks takes most of it."""
EVENTS_AT_ONCE = 32
"""Between two looks at the time."""


class Player:
    """`position_s` is the moment that is shown, in Unix seconds of the recording."""

    def __init__(
        self,
        recording: Recording,
        *,
        speed: float = 1.0,
        paused: bool = False,
        wall: Callable[[], float] = time.monotonic,
        work: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.recording = recording
        self.store = Store()
        self.begin_s, self.end_s = recording.begin_s, recording.end_s
        self.position_s = self.begin_s
        self.markers: tuple[Marker, ...] = recording.markers
        self.speed, self.paused = speed, paused
        self._target_s = self.begin_s
        """The target position; further than `position_s` during a seek."""
        self._wall, self._work = wall, work
        self._wall_s = wall()
        self._events: Iterator[Timed] = iter(())
        self._next: Timed | None = None
        self._worked_s = 0.0
        self._keyframes = [Keyframe.of(-math.inf, self.store)]
        self._bytes = 0
        self._open(-math.inf)
        self._go(math.inf)  # the state at its beginning

    @property
    def seeking(self) -> bool:
        """Whether a seek is in progress."""
        return self._next is not None and self._next[0] <= self._target_s

    @property
    def at_end(self) -> bool:
        return self.position_s >= self.end_s and not self.seeking

    def advance(self, budget_s: float = math.inf) -> bool:
        """Play up to the clock, or as far as the time allows. Whether the store changed."""
        now = self._wall()
        passed, self._wall_s = now - self._wall_s, now
        if not self.paused and not self.seeking:
            self._target_s = min(self.end_s, self._target_s + max(0.0, passed) * self.speed)
            if self._target_s >= self.end_s:
                self.paused = True  # the end: space resumes after a seek backward
        return self._go(budget_s)

    def play(self, paused: bool | None = None) -> None:
        """Pause or continue; at the end, from the beginning."""
        self.paused = not self.paused if paused is None else paused
        self._wall_s = self._wall()
        if not self.paused and self.at_end:
            self.seek(self.begin_s)

    def change_speed(self, steps: int) -> None:
        """The next faster or slower of SPEEDS."""
        at = bisect_right(SPEEDS, self.speed) - 1 if steps > 0 else _below(self.speed) + 1
        self.speed = SPEEDS[min(len(SPEEDS) - 1, max(0, at + steps))]

    def seek(self, to_s: float) -> None:
        """Seek to a time within the recording; `advance` does the work."""
        self._target_s = min(self.end_s, max(self.begin_s, to_s))
        if self._target_s >= self.position_s:
            # A keyframe further on, from when it has been there before, saves the way.
            frame = self._keyframe(self._target_s)
            if frame.at_s > self.position_s:
                self._restore(frame)
            return
        self._restore(self._keyframe(self._target_s))

    def move(self, by_s: float) -> None:
        """Forward, or with a negative number back."""
        self.seek((self._target_s if self.seeking else self.position_s) + by_s)

    def to_marker(self, step: int) -> Marker | None:
        """Seek to the next marker (`step` 1) or the previous one (-1); return None without one."""
        if step > 0:
            ahead = [m for m in self.markers if m.at_s > self._target_s]
            found = ahead[0] if ahead else None
        else:
            # Shortly after a marker, "previous" is the one before it.
            behind = [m for m in self.markers if m.at_s < self._target_s - 1.0]
            found = behind[-1] if behind else None
        if found is not None:
            self.seek(found.at_s)
        return found

    def settle(self) -> None:
        """Be where it was sent, however long it takes."""
        self._go(math.inf)

    def _go(self, budget_s: float) -> bool:
        began = self._work()
        changed = False
        while self.seeking:
            self._apply_some()
            changed = True
            now = self._work()
            if self._worked_s + now - began >= KEYFRAME_WORK_S:
                self._leave_keyframe()
                self._worked_s = began - self._work()
            if now - began >= budget_s:
                break
        self._worked_s += self._work() - began
        if not self.seeking:
            self.position_s = self._target_s
        return changed

    def _apply_some(self) -> None:
        """To the end of a time stamp: there is no keyframe between two events of the same time."""
        count = 0
        while self._next is not None and self._next[0] <= self._target_s:
            when_s, event = self._next
            if count >= EVENTS_AT_ONCE and when_s > self.position_s:
                return
            self.store.apply(event)
            self.position_s = max(self.position_s, when_s)
            self._next = next(self._events, None)
            count += 1

    def _leave_keyframe(self) -> None:
        if self.position_s <= self._keyframes[-1].at_s:
            return  # it has been here before
        frame = Keyframe.of(self.position_s, self.store)
        before = self._keyframes[-1].arrays()
        self._bytes += sum(size for key, size in frame.arrays().items() if key not in before)
        self._keyframes.append(frame)
        while len(self._keyframes) > 4 and (
            len(self._keyframes) > KEYFRAMES_KEPT or self._bytes > KEYFRAME_BYTES
        ):
            # The first keyframes are further apart, and a seek back to them takes longer.
            del self._keyframes[1 : max(3, len(self._keyframes) // 2) : 2]
            self._bytes = bytes_of(self._keyframes)

    def _keyframe(self, at_s: float) -> Keyframe:
        return self._keyframes[bisect_right(self._keyframes, at_s, key=lambda one: one.at_s) - 1]

    def _restore(self, frame: Keyframe) -> None:
        frame.restore(self.store)
        self.position_s = max(self.begin_s, frame.at_s)
        self._worked_s = 0.0
        self._open(frame.at_s)

    def _open(self, after_s: float) -> None:
        self._events = self.recording.timed(math.nextafter(after_s, math.inf))
        self._next = next(self._events, None)


def _below(speed: float) -> int:
    return bisect_right(SPEEDS, math.nextafter(speed, 0.0)) - 1


class Keyframe(Struct, frozen=True):
    at_s: float
    kept: Any

    @classmethod
    def of(cls, at_s: float, store: Store) -> Keyframe:
        return cls(at_s, _kept(store))

    def restore(self, store: Store) -> None:
        """Make `store` what it was, in place: views hold on to it."""
        was = _made(self.kept)
        for name in Store.__struct_fields__:
            if name != "version":
                setattr(store, name, getattr(was, name))
        store.version += 1  # a drawn version is not this one

    def arrays(self) -> dict[int, int]:
        """The size in bytes of each array that it keeps alive, by identity; many are shared."""
        found: dict[int, int] = {}
        _gather(self.kept, found)
        return found


def bytes_of(frames: Iterable[Keyframe]) -> int:
    """The objects that they share."""
    found: dict[int, int] = {}
    for frame in frames:
        _gather(frame.kept, found)
    return sum(found.values())


class _Object(Struct, frozen=True):
    kind: type[Any]
    values: tuple[Any, ...]


class _Curves(Struct, frozen=True):
    marks: tuple[int, dict[str, Bookmark]]


def _kept(value: Any) -> Any:
    if isinstance(value, Curves):
        return _Curves(value.bookmarks())
    if isinstance(value, Series):
        return value.bookmark()
    if isinstance(value, dict):
        return {key: _kept(item) for key, item in value.items()}
    if isinstance(value, (deque, list, set)):
        # Their items are frozen, or done with.
        return value.copy()
    if not isinstance(value, Struct) or value.__struct_config__.frozen:
        return value
    return _Object(type(value), tuple(map(_kept, astuple(value))))


def _gather(kept: Any, found: dict[int, int]) -> None:
    if isinstance(kept, Bookmark):
        for points in (kept.times, kept.values):
            found[id(points)] = len(points) * points.itemsize
    elif isinstance(kept, _Curves):
        for mark in kept.marks[1].values():
            _gather(mark, found)
    elif isinstance(kept, dict):
        for item in kept.values():
            _gather(item, found)
    elif isinstance(kept, _Object):
        for item in kept.values:
            _gather(item, found)


def _made(kept: Any) -> Any:
    if isinstance(kept, _Curves):
        return Curves.at(kept.marks)
    if isinstance(kept, Bookmark):
        return Series.at(kept)
    if isinstance(kept, dict):
        return {key: _made(item) for key, item in kept.items()}
    if isinstance(kept, (deque, list, set)):
        return kept.copy()
    if not isinstance(kept, _Object):
        return kept
    return kept.kind(*map(_made, kept.values))
