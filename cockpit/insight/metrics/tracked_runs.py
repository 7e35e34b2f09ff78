"""Runs of an experiment tracker beside each other: what differs between them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from cockpit import format
from cockpit.model.secret import masked_value
from cockpit.model.tracking import TrackedRun

IN_A_LINE = 6


class Row(Struct, frozen=True):
    """One parameter or metric of two runs. A text is empty for the run that has none."""

    name: str
    first: str
    second: str
    difference: str = ""
    """Of two numbers, the second minus the first."""

    @property
    def differs(self) -> bool:
        return self.first != self.second


class Comparison(Struct, frozen=True):
    """Two runs beside each other; what differs comes first."""

    parameters: tuple[Row, ...]
    metrics: tuple[Row, ...]


def parameters(run: TrackedRun) -> dict[str, str]:
    """Its parameters, with secrets masked."""
    return {name: masked_value(name, value) for name, value in run.params.items()}


def differing(runs: Sequence[TrackedRun]) -> list[str]:
    """Names of the parameters that do not have the same value in all runs; sorted."""
    names = {name for run in runs for name in run.params}
    return sorted(n for n in names if len({run.params.get(n) for run in runs}) > 1)


def took_s(run: TrackedRun, now_s: float) -> float | None:
    """Its duration, or that until now; None if its start or its end is not known."""
    if run.started_s is None:
        return None
    if run.ended_s is None and run.status != "RUNNING":
        return None
    return max(0.0, (now_s if run.ended_s is None else run.ended_s) - run.started_s)


def compared(first: TrackedRun, second: TrackedRun) -> Comparison:
    """All parameters and metrics of two runs."""
    left, right = parameters(first), parameters(second)
    settings = (Row(n, left.get(n, ""), right.get(n, "")) for n in _names(left, right))
    results = (_metric(name, first, second) for name in _names(first.metrics, second.metrics))
    return Comparison(_differing_first(settings), _differing_first(results))


def _metric(name: str, first: TrackedRun, second: TrackedRun) -> Row:
    a, b = first.metrics.get(name), second.metrics.get(name)
    first_text, second_text = ("" if value is None else format.number(value, 6) for value in (a, b))
    if a is None or b is None or not math.isfinite(b - a):
        return Row(name, first_text, second_text)
    sign = "+" if b > a else ""
    return Row(name, first_text, second_text, f"{sign}{format.number(b - a, 4)}")


def _names(first: Mapping[str, object], second: Mapping[str, object]) -> list[str]:
    return sorted({*first, *second})


def _differing_first(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: not row.differs))


def metrics_line(run: TrackedRun, most: int = IN_A_LINE) -> str:
    """Its metrics for one line: losses first, then by name."""
    named = sorted(run.metrics.items(), key=lambda pair: ("loss" not in pair[0], pair[0]))
    shown = " ".join(f"{name}={format.number(value)}" for name, value in named[:most])
    return f"{shown} …" if len(named) > most else shown


def parameters_line(run: TrackedRun, names: Sequence[str], most: int = IN_A_LINE) -> str:
    """These parameters, for one line."""
    given = parameters(run)
    shown = [f"{name}={given[name]}" for name in names if name in given]
    return " ".join(shown[:most]) + (" …" if len(shown) > most else "")
