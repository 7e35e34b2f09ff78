"""`cockpit drill list`: the faults, what they take, and whether they are available here."""

from __future__ import annotations

import argparse
from typing import Any

from cockpit.cli.options import connect
from cockpit.cli.output import tables
from cockpit.cli.output.streams import log
from cockpit.drills.faults import catalog
from cockpit.drills.faults.catalog import why_not
from cockpit.drills.faults.fault import Fault, Parameter
from cockpit.drills.gamedays import file
from cockpit.model.cluster import Capability
from cockpit.model.error import CockpitError, ExitCode

COLUMNS = ("name", "summary", "available")


def run(args: argparse.Namespace) -> int:
    kind, rights = _cluster(args)
    rows = [
        _row(fault, why_not(fault, kind, rights) if kind else None)
        for fault in catalog.faults()
        if args.name in fault.name
    ]
    days = [_day_row(name) for name in file.shipped() if args.name in name]
    if (args.output or "table") != "table":
        tables.print_rows([*rows, *days], (), args.output)
        return int(ExitCode.DONE)
    shown = [row | {"available": _available(row)} for row in rows]
    if shown or not days:
        tables.print_rows(shown, COLUMNS, "table", empty=f"Nothing has {args.name!r} in its name.")
    if len(rows) == 1 and not days:
        _print_details(rows[0], catalog.fault(rows[0]["name"]).ending)
    if days:
        print("\nGame days:")
        tables.print_rows(days, ("name", "summary"), "table")
    return int(ExitCode.DONE)


def _available(row: dict[str, Any]) -> str:
    return {True: "yes", False: f"no: {row['why_not']}", None: ""}[row["available"]]


def _print_details(row: dict[str, Any], ending: str) -> None:
    print(f"\nNeeds: {', '.join(row['needs']) or 'nothing'}.")
    print(f"End of the fault: {ending}.")
    if row["parameters"]:
        print()
        tables.print_table(row["parameters"], ("name", "default", "about"))


def _cluster(args: argparse.Namespace) -> tuple[str, dict[str, Capability]]:
    """Return the kind of the cluster and the user's capabilities; without a cluster, the reason."""
    try:
        with connect.session(args, sources=(), kinds=()) as session:
            backend = session.backend
            return backend.ref.backend, dict(session.call(backend.capabilities()))
    except CockpitError as error:
        if args.where.kind or args.where.cluster:
            raise
        log(f"{error.what} Which faults are available is therefore unknown.")
        return "", {}


def _row(kind: Fault, why: str | None) -> dict[str, Any]:
    return {
        "kind": "fault",
        "name": kind.name,
        "summary": kind.summary,
        "aim": kind.aim,
        "parameters": [_parameter(one) for one in kind.parameters],
        "needs": list(kind.needs),
        "ends_by_itself": kind.ends_by_itself,
        "undo": kind.undo,
        "available": None if why is None else not why,
        "why_not": why or "",
    }


def _day_row(name: str) -> dict[str, Any]:
    day = file.game_day(name)
    return {
        "kind": "game day",
        "name": name,
        "summary": day.about,
        "steps": [step.name for step in day.steps],
    }


def _parameter(one: Parameter) -> dict[str, Any]:
    return {
        "name": one.name,
        "default": one.default,
        "about": one.about,
        "choices": list(one.choices),
    }
