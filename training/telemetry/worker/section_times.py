"""Compute the times of a rank's sections and steps from the recorded borders.

A border is three entries of a flat list: its kind, the host's clock (s), and on a GPU the CUDA
event that was recorded there. Objects would be so much garbage that Python's collector runs for it.
The time between two borders belongs to the innermost open section, so that the sections of a step
never add up to more than the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from training.telemetry.worker.cuda import Event

NAMES: Final = ("data", "forward", "backward", "communication", "optimizer", "checkpoint")

LEFT: Final = {f"/{name}": name for name in NAMES}
"""The end of a section, as recorded. Its start is recorded as its name."""

HOST: Final = "host"
"""The end of a step that only the host's clock times. Its values replace the event."""

DEVICE: Final = "device"
"""The end of a step with an event at each of its borders."""

LOST: Final = "lost"
"""The end of a step that the device should have timed and did not."""

CONTINUES: Final = "continues"
"""A step starts with an open section; the device's clock must be read there."""

STEP_VALUES: Final = "said"
"""The values of a step that the device times; they replace an event."""

OTHER_THREAD: Final = "other thread"
"""Another thread executes the steps from here on; open sections of the earlier one do not count."""

ENTRIES: Final = 3

DEPTH = 16
"""The maximum nesting of sections. Deeper ones count as the one at this depth."""

Mark: TypeAlias = tuple[Event, str | None]
"""An event, and the section that continues from there."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A step. `end` is HOST, DEVICE or LOST; `host_s` is by section."""

    end: str
    at_s: float
    step_values: Any
    host_s: dict[str, float]
    marks: list[Mark]


class SectionClock:
    """Keeps, between two reads, the open sections and the times of the current step."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self._since_s = 0.0
        self._host_s: dict[str, float] = {}
        self._marks: list[Mark] = []
        self._step_values: Any = None

    def read(self, entries: Sequence[Any]) -> Iterator[Ended]:
        """The completed steps."""
        each = iter(entries)
        for what, at_s, event in zip(each, each, each, strict=True):
            if what == STEP_VALUES:
                self._step_values = event
                continue
            if what == OTHER_THREAD:
                self.open.clear()
            self._pass(at_s)
            if what == HOST:
                yield self._end(what, at_s, event)
            elif what in (DEVICE, LOST):
                if event is not None:
                    self._marks.append((event, None))
                yield self._end(what, at_s, self._step_values)
            else:
                if what in LEFT:
                    self._leave(LEFT[what])
                elif what in NAMES and len(self.open) < DEPTH:
                    self.open.append(what)
                if event is not None:
                    self._marks.append((event, self.open[-1] if self.open else None))

    def _pass(self, now_s: float) -> None:
        """Add the time since the last border to the open section."""
        if self.open and now_s >= self._since_s:  # no time if the clock was set back
            name = self.open[-1]
            self._host_s[name] = self._host_s.get(name, 0.0) + now_s - self._since_s
        self._since_s = now_s

    def _leave(self, name: str) -> None:
        """Also close the sections within it that were never closed."""
        if name in self.open:
            while self.open.pop() != name:
                pass

    def _end(self, end: str, at_s: float, step_values: Any) -> Ended:
        """The next step starts. An open section continues in it."""
        ended = Ended(end, at_s, step_values, self._host_s, self._marks)
        self._host_s, self._marks, self._step_values = {}, [], None
        return ended
