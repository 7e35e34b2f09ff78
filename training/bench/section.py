"""How a measurement is reported: a table, plots, and findings with what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    PROBLEM = "problem"
    """A threshold is not met: it costs time or money."""
    NOTE = "note"
    """A condition to consider before using the numbers."""
    GOOD = "good"
    """A threshold is met."""


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    sentence: str
    """One sentence, with its number."""
    advice: str = ""
    """What to try; empty if nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Line:
    label: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Plot:
    name: str
    """The file's name, without the extension."""
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    how: str
    """How it was measured, in a few sentences."""
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    findings: tuple[Finding, ...] = ()
