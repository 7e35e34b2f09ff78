"""The output of a benchmark: a heading, the method, and a table of its numbers."""

from __future__ import annotations

import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Line:
    """One number as text. `passed` is None where nothing was promised."""

    measure: str
    value: str
    target: str = ""
    passed: bool | None = None


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    how: str
    lines: Sequence[Line]
    load: str
    """The load of the machine when the measurement began; see `load`."""

    @property
    def passed(self) -> bool:
        return all(line.passed is not False for line in self.lines)

    @property
    def markdown(self) -> str:
        verdicts = {True: "pass", False: "**FAIL**", None: ""}
        rows = [
            f"| {line.measure} | {line.value} | {line.target} | {verdicts[line.passed]} |"
            for line in self.lines
        ]
        head = ["| measure | value | target | |", "|---|---|---|---|"]
        text = f"{self.how} At the start: {self.load}."
        return "\n".join([f"## {self.title}", "", text, "", *head, *rows])


def show(measure: Callable[[], Table]) -> int:
    """Measure and print; the exit code. A SIGTERM ends it as Ctrl-C does: no cluster is left."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    table = measure()
    print(table.markdown)
    return 0 if table.passed else 1


def load() -> str:
    """The CPU share of other programs now. Waits for a second."""
    average = Path("/proc/loadavg").read_text().split()[0]
    return f"{busy():.0%} of the CPU used by other programs, load average {average}"


def busy(over_s: float = 1.0) -> float:
    """The share of the processors' time that was not idle."""
    idle, total = _ticks()
    time.sleep(over_s)
    idle_after, total_after = _ticks()
    return 1 - (idle_after - idle) / max(1, total_after - total)


def _ticks() -> tuple[int, int]:
    """Idle and all, since boot (proc(5)); idle includes waiting for a disk."""
    text = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    ticks = [int(label) for label in text[:8]]
    return ticks[3] + ticks[4], sum(ticks)


def spread(values: Sequence[float], unit: str = "", digits: int = 3) -> str:
    """The median and the quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    space = " " if unit else ""
    return f"{middle:.{digits}f}{space}{unit} ({low:.{digits}f}–{high:.{digits}f})"


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
