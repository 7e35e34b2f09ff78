"""What a measurement prints: a heading, how it was measured, and a table of its numbers."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
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
    """The machine's load averages when the measurement began; see `load`."""

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
        head = ["| measure | value | promise | |", "|---|---|---|---|"]
        said = f"{self.how} Load average at the start: {self.load}."
        return "\n".join([f"## {self.title}", "", said, "", *head, *rows])


def show(table: Table) -> int:
    """Print it; the exit code."""
    print(table.markdown)
    return 0 if table.passed else 1


def load() -> str:
    """Over 1, 5 and 15 minutes; above the number of cores, processes wait for each other."""
    return " ".join(Path("/proc/loadavg").read_text().split()[:3])


def spread(values: Sequence[float], unit: str = "", digits: int = 3) -> str:
    """The median and the quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    space = " " if unit else ""
    return f"{middle:.{digits}f}{space}{unit} ({low:.{digits}f}–{high:.{digits}f})"


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
