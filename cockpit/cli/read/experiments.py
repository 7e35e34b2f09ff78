"""`cockpit experiments`: the runs of MLflow, one of them, or two beside each other."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from typing import Any

from cockpit.cli.options import mlflow
from cockpit.cli.output import tables
from cockpit.cli.output.tables import as_json, print_object, print_rows, print_table
from cockpit.config import paths
from cockpit.config.repeatable_flag import repeatable
from cockpit.insight.metrics.tracked_runs import (
    Comparison,
    compared,
    differing,
    metrics_line,
    parameters,
    parameters_line,
    took_s,
)
from cockpit.model.error import ExitCode, UsageError
from cockpit.model.text import one_line
from cockpit.model.tracking import ModelVersion, TrackedRun

LIMIT = 50
COLUMNS = ("name", "experiment", "status", "started_s", "time", "metrics", "parameters", "id")
ID_CHARS = 8
"""As many of an id are shown in the table, and enough to select a run."""
MOST_LISTED = 6


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.description = (
        "The runs of the MLflow server that [mlflow] or MLFLOW_TRACKING_URI names, the newest "
        "first. With one RUN: its parameters, metrics, artifacts and model versions. With two: "
        "what differs between them; each is a run of MLflow, or else a recorded run."
    )
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="a name, an id, its beginning, or Ray Train's run id; of two, also a recording",
    )
    repeatable(parser, "--experiment", "NAME", "only this one; repeatable")
    parser.add_argument(
        "--limit", type=int, default=LIMIT, metavar="N", help=f"runs to list (default {LIMIT})"
    )
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if len(args.runs) > 2:
        raise UsageError("cockpit experiments compares two runs.", "More are given.")
    if args.limit < 1:
        raise UsageError("--limit must be 1 or more.")
    asyncio.run(_run(args))
    return int(ExitCode.DONE)


async def _run(args: argparse.Namespace) -> None:
    from cockpit.sources.mlflow.source import RUN_TAGS

    client = mlflow.client()
    try:
        experiments = await client.experiments()
        for name in args.experiment:
            if name not in experiments.values():
                known = ", ".join(list(experiments.values())[:MOST_LISTED]) or "none"
                raise UsageError(f"There is no experiment {one_line(name)!r}.", f"Known: {known}.")
        if args.experiment:
            experiments = {k: name for k, name in experiments.items() if name in args.experiment}
        found = await client.runs(experiments, 0.0)
        by_tag = {tagged: one.run for one in reversed(found) for tag in RUN_TAGS
                  if (tagged := one.tags.get(tag))}  # fmt: skip
        listed = [one.run for one in found]
        select = selected_or_recorded if len(args.runs) > 1 else selected
        chosen = [select(name, listed, by_tag) for name in args.runs]
        if not chosen:
            _print_list(listed, args)
        elif len(chosen) == 1:
            artifacts = await client.artifacts(chosen[0].id)
            _print_one(chosen[0], artifacts, await client.model_versions(chosen[0].id), args.output)
        else:
            print_comparison(chosen[0], chosen[1], args.output)
    finally:
        await client.aclose()


def selected(wanted: str, runs: Sequence[TrackedRun], by_tag: dict[str, TrackedRun]) -> TrackedRun:
    """The run with this id or Ray Train's, else the newest of the name, else by the id's beginning.

    `runs` are the newest first. Raises UsageError for none or several.
    """
    exact = next((run for run in runs if run.id == wanted), None) or by_tag.get(wanted)
    named = exact or next((run for run in runs if run.name == wanted), None)
    if named is not None:
        return named
    begin = [run for run in runs if wanted and run.id.startswith(wanted)]
    if len(begin) == 1:
        return begin[0]
    what = (
        f"Several runs begin with {one_line(wanted)!r}."
        if begin
        else f"No run has the name or id {one_line(wanted)!r}, or an id that begins with it."
    )
    names = ", ".join(run.name or run.id for run in (begin or runs)[:MOST_LISTED])
    raise UsageError(
        what,
        f"Runs: {names or 'none'}.",
        "See: cockpit experiments",
    )


def selected_or_recorded(
    wanted: str, runs: Sequence[TrackedRun], by_tag: dict[str, TrackedRun]
) -> TrackedRun:
    """The run that `selected` returns, else the recorded one. Raises UsageError for neither."""
    from cockpit.recorder.reading.library import Library
    from cockpit.recorder.reading.tracked import tracked

    try:
        return selected(wanted, runs, by_tag)
    except UsageError as not_tracked:
        try:
            path = Library(paths.state_dir()).find(wanted)
        except UsageError as not_recorded:
            raise UsageError(
                not_tracked.what,
                f"{not_tracked.why} {not_recorded.what} {not_recorded.why}".rstrip(),
                "See: cockpit experiments, and cockpit recordings",
            ) from not_tracked
        return tracked(path)


def _print_list(listed: Sequence[TrackedRun], args: argparse.Namespace) -> None:
    shown, now_s = list(listed[: args.limit]), time.time()
    differ = differing(shown)
    if args.output != "table":
        print_rows([as_row(run, now_s) for run in shown], COLUMNS, args.output)
        return
    from cockpit.format import duration

    rows = [
        {
            "name": run.name,
            "experiment": run.experiment,
            "status": run.status,
            "started_s": run.started_s,
            "time": duration(took_s(run, now_s)),
            "metrics": metrics_line(run),
            "parameters": parameters_line(run, differ),
            "id": run.id[:ID_CHARS],
            "url": run.url,
        }
        for run in shown
    ]
    print_rows(rows, COLUMNS, "table", empty="No runs: nothing was logged to this MLflow server.")
    if len(listed) > len(shown):
        print(f"{len(listed) - len(shown)} older runs are not shown: --limit {len(listed)}")


def as_row(run: TrackedRun, now_s: float) -> dict[str, Any]:
    """One JSON-ready object."""
    found: dict[str, Any] = as_json(run)
    del found["artifacts"], found["models"]  # listed for one run only
    return found | {"params": parameters(run), "time_s": as_json(took_s(run, now_s))}


def _print_one(
    run: TrackedRun, artifacts: Sequence[str], versions: Sequence[ModelVersion], output: str
) -> None:
    now_s = time.time()
    if output != "table":
        more = {"artifacts": list(artifacts), "model_versions": as_json(versions)}
        print_object(as_row(run, now_s) | more, output)
        return
    from cockpit.format import duration, number

    facts = {
        "run": f"{run.name}  {run.id}",
        "experiment": run.experiment,
        "status": f"{run.status}, {duration(took_s(run, now_s))}",
        "page": run.url,
    }
    if run.run_id:
        facts["ray train run"] = run.run_id
    for name, text in facts.items():
        print(f"{name:<14} {text}")
    _section("parameters", [{"name": n, "value": v} for n, v in sorted(parameters(run).items())])
    values = [{"name": n, "value": number(v, 6)} for n, v in sorted(run.metrics.items())]
    _section("metrics", values)
    models = [
        {"name": each.name, "version": each.version, "aliases": each.aliases, "page": each.url}
        for each in versions
    ]
    _section("model versions", models)
    _section("artifacts", [{"name": name} for name in artifacts])


def _section(title: str, rows: Sequence[dict[str, Any]]) -> None:
    print(f"\n{title}: {len(rows) or 'none'}")
    if rows:
        print_table(rows, tuple(rows[0]))


def print_comparison(first: TrackedRun, second: TrackedRun, output: str) -> None:
    found, now_s = compared(first, second), time.time()
    if output != "table":
        both = [as_row(run, now_s) for run in (first, second)]
        differ = {
            name: [as_json(row) | {"differs": row.differs} for row in rows]
            for name, rows in (("parameters", found.parameters), ("metrics", found.metrics))
        }
        print_object({"runs": both} | differ, output)
        return
    for letter, run in (("A", first), ("B", second)):
        print(f"{letter}  {run.name}  {run.id[:ID_CHARS]}  {run.status}  {run.url}")
    _print_rows_of(found)


def _print_rows_of(found: Comparison) -> None:
    for title, rows in (("parameters", found.parameters), ("metrics", found.metrics)):
        differ = [row for row in rows if row.differs]
        print(f"\n{title}: {len(differ)} of {len(rows)} differ")
        lines = [
            {"name": row.name, "A": row.first, "B": row.second, "difference": row.difference}
            for row in differ
        ]
        if lines:
            with_numbers = any(row.difference for row in differ)
            print_table(lines, ("name", "A", "B", *(("difference",) * with_numbers)))
