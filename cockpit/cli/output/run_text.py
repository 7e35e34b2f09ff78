"""A run for people: the lines of `cockpit status`, and what its ranks reported as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cockpit import format
from cockpit.insight.metrics.stall import stall
from cockpit.model.run import Checkpoint, Phase
from cockpit.model.text import one_line
from cockpit.store.run import RunView

REPORTED_SHOWN = 6
"""A job may report hundreds of numbers."""


def run_lines(run: RunView, now_s: float) -> Iterator[str]:
    words = [run.state.value]
    if run.attempt is not None:
        words.append(f"attempt {run.attempt.number}")
    if run.step is not None:
        words.append(f"step {run.step}")
    if run.phases and not run.state.is_over:
        since_s, _, phase = run.phases[-1]
        if phase is not Phase.RUNNING:
            words.append(f"{phase.value} for {max(0.0, now_s - since_s):.0f} s")
    stalled = stall(run, now_s)
    if stalled is not None:
        words.append(f"STALLED for {format.duration(now_s - stalled.since_s)}")
    yield f"Run {run.name or run.id}: {', '.join(words)}"
    if stalled is not None:
        bound = format.duration(stalled.bound_s)
        yield f"No step, report or checkpoint since then: longer than its pace explains ({bound})"
    if run.message:
        yield f"It says: {run.message}"
    ended = [run.attempts[number].reason for number in sorted(run.attempts)[:-1]]
    if ended:
        yield f"Last restart: {ended[-1]}"
    if run.metrics:
        told = [f"{one_line(name, 40)} {value:.4g}" for name, value in run.metrics.items()]
        more = len(told) - REPORTED_SHOWN
        rest = f" and {more} more" if more > 0 else ""
        yield f"Reported: {', '.join(told[:REPORTED_SHOWN])}{rest}"
    if run.checkpoint is not None:
        yield f"Checkpoint: {_checkpoint(run.checkpoint, run.checkpoint_s, now_s)}"


def _checkpoint(known: Checkpoint, at_s: float | None, now_s: float) -> str:
    words = [] if known.step is None else [f"step {known.step}"]
    if at_s is not None:
        words.append(f"{max(0.0, now_s - at_s):.0f} s ago")
    if known.size_bytes is not None:
        words.append(_size(known.size_bytes))
    if known.took_s is not None:
        words.append(f"taken in {known.took_s:.2g} s")
    return ", ".join([*words, one_line(known.path)])


def _size(size_bytes: int) -> str:
    for unit, of_bytes in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size_bytes >= of_bytes:
            return f"{size_bytes / of_bytes:.1f} {unit}"
    return f"{size_bytes / 1e3:.1f} kB"


def reported_rows(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of ranks with what each gave to its newest report, and the columns for it."""
    names = list(dict.fromkeys(name for row in rows for name in row["reported"]))[:REPORTED_SHOWN]
    filled = [row | {name: row["reported"].get(name) for name in names} for row in rows]
    return filled, ["rank", "pod", *names]
