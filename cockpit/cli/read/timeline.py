"""`cockpit timeline [JOB] --out FILE`: a job's tasks and its run as a trace for Perfetto."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from cockpit.cli.options import connect
from cockpit.cli.output import tables
from cockpit.cli.output.tables import as_json
from cockpit.cli.read.profile import write
from cockpit.model.error import ExitCode, UsageError
from cockpit.session.session import Session
from cockpit.sources.ray.profiling import RayTools
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run
from cockpit.store.store import Store


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.description = (
        "Write Ray's tasks, and the run's states, attempts, phases, checkpoints and curves, as a "
        "Chrome trace: open it at ui.perfetto.dev or chrome://tracing. Ray keeps only the "
        "newest tasks, and returns at most 10,000."
    )
    parser.add_argument(
        "job",
        nargs="?",
        default="",
        metavar="JOB",
        help=(
            "a job's submission id or Ray job id, or a run's name or id (default: the current run)"
        ),
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("timeline.json"),
        metavar="FILE",
        help="the file (default: timeline.json here)",
    )
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    with connect.session(args, sources=("ray", "telemetry"), kinds=("pods", "rayjobs")) as session:
        connect.wait_for(session, ("ray", "telemetry"))
        job_id, of_run = chosen(session.store, args.job)
        tasks = session.call(_tasks(session, job_id))
        now_s = session.clock()
        rows = trace_events(session.store, of_run, now_s) if of_run is not None else []
    about = {"job": job_id, "run": of_run.id if of_run else "", "made_by": "cockpit"}
    text = json.dumps(as_exact(trace(tasks, rows, about)), allow_nan=False)
    write(args.out, text.encode())
    row: dict[str, Any] = {"file": str(args.out), "job_id": job_id}
    row |= {"run_id": of_run.id if of_run else "", "tasks": len(tasks), "rows": len(rows)}
    if args.output == "table":
        of = f" and {len(rows):,} events of run {of_run.name or of_run.id}" if of_run else ""
        print(f"{len(tasks):,} events of Ray's tasks{of}.", file=sys.stderr)
        print(args.out)
    else:
        tables.print_object(row, args.output)
    return int(ExitCode.DONE)


def chosen(store: Store, name: str) -> tuple[str, RunView | None]:
    """Ray's id of the job (empty: all jobs) and the run of it. UsageError for no such job."""
    if not name:
        run = current_run(store)
        return (_ray_id(store, run) if run else ""), run
    runs = sorted(store.runs.values(), key=lambda run: run.started_s, reverse=True)
    for run in runs:
        if name in (run.id, run.name, run.submission_id, run.job_id):
            return _ray_id(store, run), run
    for job in store.jobs.values():
        if name in (job.id, job.ray_id, job.rayjob):
            return job.ray_id, None
    names = ", ".join([*store.jobs, *(run.name for run in runs if run.name)]) or "none"
    raise UsageError(f"There is no job or run {name!r}.", f"Available: {names}.")


def _ray_id(store: Store, run: RunView) -> str:
    job = store.jobs.get(run.submission_id)
    return run.job_id or (job.ray_id if job else "")


async def _tasks(session: Session, job_id: str) -> list[dict[str, Any]]:
    async with RayTools(session.backend.dashboard) as tools:
        return await tools.timeline(job_id)


def as_exact(value: Any) -> Any:
    """As JSON has it: enums by value, what is not finite as text. Times keep all their digits."""
    if isinstance(value, dict):
        return {str(key): as_exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_exact(item) for item in value]
    return (
        value
        if isinstance(value, float) and value == value and abs(value) < 1e300
        else (as_json(value))
    )


PID = 1_000_000
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

TraceEvent = dict[str, Any]


def trace_events(store: Store, run: RunView, now_s: float) -> list[TraceEvent]:
    """States, attempts, phases, checkpoints, drills and marks as slices; curves as counters."""
    end_s = run.ended_s if run.ended_s is not None else now_s
    found: list[TraceEvent] = [_named("process_name", 0, f"run {run.name or run.id}")]
    found += [_named("thread_name", thread, name) for thread, name in _THREADS.items()]
    found += _states(run, end_s)
    found += _attempts(run, end_s)
    found += _phases(run, end_s)
    for at_s, checkpoint in run.checkpoints:
        took_s = checkpoint.took_s or 0.0
        details = {"path": checkpoint.path, "size_bytes": checkpoint.size_bytes}
        name = "checkpoint" if checkpoint.step is None else f"checkpoint {checkpoint.step}"
        found.append(_slice(CHECKPOINTS, name, at_s - took_s, at_s, **details))
    for drill in store.drills:
        if drill.run_id in ("", run.id):
            found.append(_moment(DRILLS, f"{drill.fault} {drill.target}", drill.injected_s))
    for mark in store.marks:
        if run.started_s <= mark.at_s <= end_s:
            found.append(_moment(MARKS, mark.text, mark.at_s))
    for curve, name in COUNTERS.items():
        for at_s, value in run.curves[curve]:
            if math.isfinite(value):  # JSON has no value for the others
                found.append(_event("C", 0, name, at_s) | {"args": {name: value}})
    return found


def trace(tasks: list[TraceEvent], rows: list[TraceEvent], about: dict[str, str]) -> dict[str, Any]:
    """Return the complete file: Ray's tasks and cockpit's rows, sorted by time, names first."""
    events = [*rows, *tasks]
    events.sort(key=lambda event: (event.get("ph") != "M", event.get("ts") or 0.0))
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _states(run: RunView, end_s: float) -> Iterator[TraceEvent]:
    ends = [at_s for at_s, _ in run.states[1:]] + [end_s]
    for (at_s, state), until_s in zip(run.states, ends, strict=True):
        if not state.is_over:
            yield _slice(STATES, state.value, at_s, until_s)


def _attempts(run: RunView, end_s: float) -> Iterator[TraceEvent]:
    for number, attempt in sorted(run.attempts.items()):
        if attempt.started_s is None:
            continue
        until_s = attempt.ended_s if attempt.ended_s is not None else end_s
        yield _slice(
            ATTEMPTS,
            f"attempt {number}",
            attempt.started_s,
            until_s,
            ranks=len(attempt.placements),
            first_step=attempt.first_step,
            last_step=attempt.last_step,
            reason=attempt.reason,
        )


def _phases(run: RunView, end_s: float) -> Iterator[TraceEvent]:
    last = [(end_s, 0, None)] if run.phases else []
    for (at_s, attempt, phase), (until_s, _, _) in pairwise([*run.phases, *last]):
        if phase is not None:
            yield _slice(PHASES, phase.value, at_s, until_s, attempt=attempt)


def _slice(thread: int, name: str, start_s: float, end_s: float, **details: Any) -> TraceEvent:
    fields = {key: value for key, value in details.items() if value not in (None, "")}
    lasted = {"dur": max(0.0, end_s - start_s) * 1e6, "args": fields}
    return _event("X", thread, name, start_s) | lasted


def _moment(thread: int, name: str, at_s: float) -> TraceEvent:
    return _event("i", thread, name, at_s) | {"s": "p"}


def _named(what: str, thread: int, name: str) -> TraceEvent:
    return {"ph": "M", "name": what, "pid": PID, "tid": thread, "args": {"name": name}}


def _event(kind: str, thread: int, name: str, at_s: float) -> TraceEvent:
    return {
        "ph": kind, "cat": "cockpit", "name": name, "pid": PID, "tid": thread, "ts": at_s * 1e6
    }  # fmt: skip
