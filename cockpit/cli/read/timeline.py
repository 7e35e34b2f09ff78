"""`cockpit timeline [JOB] --out FILE`: a job's tasks and its run as a trace for Perfetto."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from cockpit.cli.options import connect
from cockpit.cli.output import tables
from cockpit.cli.output.tables import as_json
from cockpit.cli.read.chrome_trace import run_events, trace
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
        "Chrome trace: open it at ui.perfetto.dev or chrome://tracing. Ray keeps the newest "
        "tasks alone, and gives at most 10,000."
    )
    parser.add_argument(
        "job",
        nargs="?",
        default="",
        metavar="JOB",
        help="a job's id, Ray's id of it, or a run's name or id (default: the current run)",
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
        rows = run_events(session.store, of_run, now_s) if of_run is not None else []
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
        tables.print_json(row, indent=2 if args.output == "json" else None)
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
    known = ", ".join([*store.jobs, *(run.name for run in runs if run.name)]) or "none"
    raise UsageError(f"There is no job or run {name!r}.", f"There is: {known}.")


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
