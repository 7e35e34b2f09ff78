"""`cockpit hang [RUN]`: why a run makes no progress, and which ranks cause it."""

from __future__ import annotations

import argparse

from cockpit.cli.options import connect
from cockpit.cli.output import tables
from cockpit.insight.hang.before import changes
from cockpit.insight.hang.text import lines
from cockpit.insight.hang.verdict import verdict
from cockpit.model.error import ExitCode, UsageError
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run
from cockpit.store.store import Store


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.description = (
        "Why a run makes no progress: the ranks that block the others, the collective in which "
        "these wait, and the stacks of all ranks, grouped. Each rank sends them itself when its "
        "progress is late."
    )
    parser.add_argument(
        "run", nargs="?", default="", metavar="RUN", help="a run's name or id (default: the newest)"
    )
    parser.add_argument("--fail", action="store_true", help="exit with 1 when the run hangs")
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    with connect.session(args, sources=("telemetry", "ray")) as session:
        connect.wait_for(session, ("telemetry", "ray"))
        of = _chosen(session.store, args.run)
        now_s = session.clock()
        found = verdict(of, now_s) if of is not None else None
        before = changes(session.store, of, found) if of is not None and found is not None else []
    if args.output != "table":
        named = {"run": of.id if of else None, "name": of.name if of else None}
        row = {**named, "verdict": found, "before": before}
        tables.print_object(row, args.output)
    elif of is None:
        print("No training run.")
    elif found is None:
        print(f"Run {of.name or of.id} is {of.state.value}: no rank reports a hang.")
    else:
        print("\n".join(lines(found, before, now_s=now_s)))
    return 1 if args.fail and found is not None and found.is_late else int(ExitCode.DONE)


def _chosen(store: Store, name: str) -> RunView | None:
    if not name:
        return current_run(store)
    runs = sorted(store.runs.values(), key=lambda run: -run.started_s)
    for of in runs:
        if name in (of.id, of.name, of.submission_id):
            return of
    known = ", ".join(dict.fromkeys(run.name or run.id for run in runs)) or "none"
    raise UsageError(f"There is no run {name!r}.", f"There is: {known}.")
