"""A run as events of a Chrome trace (Trace Event Format), which Perfetto opens. Pure.

Times are Unix time in microseconds, as in Ray's own timeline of tasks, so that both lie on one
axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from cockpit.store.run import RunView
from cockpit.store.store import Store

FIRST_PID = 1_000_000
"""Ray numbers nodes from 0 as processes of the trace; ours must be others."""
STATES, ATTEMPTS, PHASES, CHECKPOINTS, DRILLS, MARKS = range(1, 7)
_THREADS = {
    STATES: "state",
    ATTEMPTS: "attempts",
    PHASES: "phases",
    CHECKPOINTS: "checkpoints",
    DRILLS: "drills",
    MARKS: "marks",
}
COUNTERS = {
    "loss": "loss",
    "step_time_s": "step time (s)",
    "samples_per_s": "samples/s",
    "data_wait_s": "data wait (s)",
    "gpu_utilization_percent": "GPU (%)",
}
"""Curves of the run that are drawn under it, by field of `RankSample`."""

Event = dict[str, Any]


def run_events(store: Store, run: RunView, now_s: float, pid: int = FIRST_PID) -> list[Event]:
    """States, attempts, phases, checkpoints, drills and marks as slices; curves as counters."""
    end_s = run.ended_s if run.ended_s is not None else now_s
    found: list[Event] = [_named("process_name", pid, 0, f"run {run.name or run.id}")]
    found += [_named("thread_name", pid, thread, name) for thread, name in _THREADS.items()]
    found += _states(run, end_s, pid)
    found += _attempts(run, end_s, pid)
    found += _phases(run, end_s, pid)
    for at_s, checkpoint in run.checkpoints:
        took_s = checkpoint.took_s or 0.0
        details = {"path": checkpoint.path, "size_bytes": checkpoint.size_bytes}
        name = "checkpoint" if checkpoint.step is None else f"checkpoint {checkpoint.step}"
        found.append(_slice(pid, CHECKPOINTS, name, at_s - took_s, at_s, **details))
    for drill in store.drills:
        if drill.run_id in ("", run.id):
            found.append(_moment(pid, DRILLS, f"{drill.fault} {drill.target}", drill.injected_s))
    for mark in store.marks:
        if run.started_s <= mark.at_s <= end_s:
            found.append(_moment(pid, MARKS, mark.text, mark.at_s))
    for curve, name in COUNTERS.items():
        for at_s, value in run.curves[curve]:
            if math.isfinite(value):  # JSON has no word for the others
                found.append(_event("C", pid, 0, name, at_s) | {"args": {name: value}})
    return found


def trace(tasks: list[Event], rows: list[Event], about: dict[str, str]) -> dict[str, Any]:
    """The whole file: Ray's tasks and our rows, sorted by time, names first."""
    events = [*rows, *tasks]
    events.sort(key=lambda event: (event.get("ph") != "M", event.get("ts") or 0.0))
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _states(run: RunView, end_s: float, pid: int) -> Iterator[Event]:
    ends = [at_s for at_s, _ in run.states[1:]] + [end_s]
    for (at_s, state), until_s in zip(run.states, ends, strict=True):
        if not state.is_over:
            yield _slice(pid, STATES, state.value, at_s, until_s)


def _attempts(run: RunView, end_s: float, pid: int) -> Iterator[Event]:
    for number, attempt in sorted(run.attempts.items()):
        if attempt.started_s is None:
            continue
        until_s = attempt.ended_s if attempt.ended_s is not None else end_s
        yield _slice(
            pid,
            ATTEMPTS,
            f"attempt {number}",
            attempt.started_s,
            until_s,
            ranks=len(attempt.placements),
            first_step=attempt.first_step,
            last_step=attempt.last_step,
            reason=attempt.reason,
        )


def _phases(run: RunView, end_s: float, pid: int) -> Iterator[Event]:
    last = [(end_s, 0, None)] if run.phases else []
    for (at_s, attempt, phase), (until_s, _, _) in pairwise([*run.phases, *last]):
        if phase is not None:
            yield _slice(pid, PHASES, phase.value, at_s, until_s, attempt=attempt)


def _slice(pid: int, thread: int, name: str, start_s: float, end_s: float, **details: Any) -> Event:
    known = {key: value for key, value in details.items() if value not in (None, "")}
    lasted = {"dur": max(0.0, end_s - start_s) * 1e6, "args": known}
    return _event("X", pid, thread, name, start_s) | lasted


def _moment(pid: int, thread: int, name: str, at_s: float) -> Event:
    return _event("i", pid, thread, name, at_s) | {"s": "p"}


def _named(what: str, pid: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": thread, "args": {"name": name}}


def _event(kind: str, pid: int, thread: int, name: str, at_s: float) -> Event:
    return {
        "ph": kind, "cat": "cockpit", "name": name, "pid": pid, "tid": thread, "ts": at_s * 1e6
    }  # fmt: skip
