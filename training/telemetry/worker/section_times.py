"""What passed between the borders of a rank's sections and steps, which it has written down.

A border is three entries of a flat list, and no object of its own, of which a loop would make so
many that Python's collector runs for them: what it is, the host's clock (s), and on a GPU the CUDA
event that was recorded there. What passes between two borders belongs to the innermost section that
was open, so that the sections of a step never add up to more than the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from training.telemetry.worker.cuda import Event

NAMES: Final = ("data", "forward", "backward", "communication", "optimizer", "checkpoint")

LEFT: Final = {f"/{name}": name for name in NAMES}
"""The end of a section, by what is written. Its beginning is written as its name."""

HOST: Final = "host"
"""The end of a step that only the host's clock times. In the place of an event, its values."""

DEVICE: Final = "device"
"""The end of a step with an event at each of its borders."""

LOST: Final = "lost"
"""The end of a step that the device should have timed and did not."""

CONTINUES: Final = "continues"
"""A step begins with a section open; the device's clock has to be read there."""

STEP_VALUES: Final = "said"
"""In the place of an event, the values of a step that the device times."""

OTHER_THREAD: Final = "other thread"
"""It does the steps from here: the sections that another one has open are not its own."""

ENTRIES: Final = 3

DEPTH = 16
"""Sections within sections. What is deeper belongs to the one at this depth."""

Mark: TypeAlias = tuple[Event, str | None]
"""An event, and the section that goes on from there."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A step. `end` is HOST, DEVICE or LOST; `host_s` is by section."""

    end: str
    at_s: float
    step_values: Any
    host_s: dict[str, float]
    marks: list[Mark]


class SectionClock:
    """Remembers between two reads what is open, and what the step under way has come to."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self._since_s = 0.0
        self._host_s: dict[str, float] = {}
        self._marks: list[Mark] = []
        self._step_values: Any = None

    def read(self, entries: Sequence[Any]) -> Iterator[Ended]:
        """The steps that ended."""
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
        """Book the time since the last border to the section that is open."""
        if self.open and now_s >= self._since_s:  # a clock that went back has no time to book
            name = self.open[-1]
            self._host_s[name] = self._host_s.get(name, 0.0) + now_s - self._since_s
        self._since_s = now_s

    def _leave(self, name: str) -> None:
        """Those within it that were never left are left too."""
        if name in self.open:
            while self.open.pop() != name:
                pass

    def _end(self, end: str, at_s: float, step_values: Any) -> Ended:
        """The next step begins. A section that is open goes on in it."""
        ended = Ended(end, at_s, step_values, self._host_s, self._marks)
        self._host_s, self._marks, self._step_values = {}, [], None
        return ended
