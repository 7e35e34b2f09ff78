"""`cockpit trials`: the trials of Ray Tune, the best first."""

from __future__ import annotations

import argparse
from typing import Any

from cockpit.cli.options import connect
from cockpit.cli.output import tables
from cockpit.cli.output.tables import as_json, print_json, print_rows
from cockpit.model.error import ExitCode
from cockpit.store.store import Store

COLUMNS = ("name", "experiment", "status", "iteration", "best", "metric", "config", "node_ip")
_EMPTY = "No trials: no Tune experiment has reported its trials."


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.description = (
        "The trials of every Tune experiment whose telemetry this cluster has, each with its "
        "newest result; the best by the experiment's own metric comes first."
    )
    tables.arguments(parser, tables.LISTS)
    tables.watch_argument(parser, "print a line of JSON at each change")


def run(args: argparse.Namespace) -> int:
    with connect.session(args, sources=("telemetry",), kinds=("pods",)) as session:
        connect.wait_for(session, ("telemetry",))
        last: list[dict[str, Any]] | None = None
        while args.watch:
            if (now := rows_of(session.store)) != last:
                print_json({"at_s": session.clock(), "trials": now}, indent=None)
                last = now
            session.wait_for_change()
        rows = rows_of(session.store)
    if args.output == "table":
        rows = [
            row | {"config": " ".join(f"{k}={v}" for k, v in row["differs"].items())}
            for row in rows
        ]
    print_rows(rows, COLUMNS, args.output, empty=_EMPTY)
    return int(ExitCode.DONE)


def rows_of(store: Store) -> list[dict[str, Any]]:
    """One JSON-ready object a trial, with the experiment's metric and whether it is the best."""
    from cockpit.store.trials import best, in_order, varied

    found = []
    for experiment in store.experiments.values():
        top = best(experiment)
        differ = varied(list(experiment.trials.values()))
        for trial in in_order(experiment):
            found.append(
                {"name": trial.id}
                | as_json(trial)
                | {
                    "metric": trial.metrics.get(experiment.metric),
                    "metric_name": experiment.metric,
                    "mode": experiment.mode,
                    "best": top is not None and top.id == trial.id,
                    "differs": {name: trial.config.get(name, "") for name in differ},
                }
            )
    return found
