"""`cockpit drill undo`: undo what drills have left, of killed cockpits or after a failed undo."""

from __future__ import annotations

import argparse
from typing import Any

from cockpit.actions.drills import DrillActions
from cockpit.cli.options import confirm, connect
from cockpit.cli.output import tables
from cockpit.cli.output.streams import log
from cockpit.config.cluster_flags import Place
from cockpit.drills.engine import interrupted
from cockpit.drills.engine.journal import Entry, Journal
from cockpit.model.clock import server_time
from cockpit.model.cluster import ClusterRef, is_protected
from cockpit.model.error import CockpitError, ExitCode, UsageError


def run(args: argparse.Namespace) -> int:
    journal, now_s = Journal(), server_time()
    bad = journal.unreadable()
    for each in bad:
        log(f"{each.line}.")
    found = [entry for entry in journal.entries() if interrupted.is_of(entry, args.name)]
    left = [entry for entry in found if entry.is_left]
    if args.name and not left:
        if found:
            raise UsageError(
                f"Drill {args.name} is running, in process {found[0].process.pid}.",
                "It undoes itself at its end.",
                f"End it with Ctrl-C there, or: kill -INT {found[0].process.pid}",
            )
        raise UsageError(
            f"Drill {args.name} left nothing to undo.", todo="See: cockpit drill history"
        )
    if not left:
        _show(args, [])
        return int(ExitCode.FAILED if bad else ExitCode.DONE)
    agreed = _agreed(args, left, now_s)
    clusters = list(dict.fromkeys(entry.cluster for entry in agreed))
    protected = [ref for ref in clusters if is_protected(ref, args.protected)]
    if protected and len(clusters) > 1:
        raise UsageError(
            f"{protected[0].described} is protected, and drills have left something elsewhere too.",
            todo="Undo one drill at a time: cockpit drill undo ID",
        )
    on = clusters[0] if len(clusters) == 1 else None
    plan = [_plan(entry, now_s) for entry in agreed]
    if not confirm.confirmed(args, plan, on, destroys=bool(protected)):
        return confirm.not_confirmed(args)
    rows = [_row(entry, False, _not_asked(entry, now_s)) for entry in left if entry not in agreed]
    for ref in clusters:
        rows += _undo_on_cluster(
            args, ref, journal, [entry for entry in agreed if entry.cluster == ref]
        )
    _show(args, rows)
    is_all = not bad and all(row["undone"] for row in rows)
    return int(ExitCode.DONE if is_all else ExitCode.FAILED)


def _agreed(args: argparse.Namespace, left: list[Entry], now_s: float) -> list[Entry]:
    """`--yes` alone covers recent entries; others need an ID, `--all` or a confirmation."""
    if args.name or args.all or not args.yes or args.dry_run:
        return left
    return interrupted.split(left, now_s)[0]


def _not_asked(entry: Entry, now_s: float) -> str:
    return (
        f"{interrupted.described(entry, now_s)}. Not undone: --yes does not cover it. "
        f"Undo it with: cockpit drill undo {entry.record_id}"
    )


def _undo_on_cluster(
    args: argparse.Namespace, ref: ClusterRef, journal: Journal, of_cluster: list[Entry]
) -> list[dict[str, Any]]:
    there = argparse.Namespace(**vars(args))
    there.where = _place(ref)
    if ref.backend == "local" and _is_down(ref):
        for entry in of_cluster:
            journal.forget(entry)
        return [_row(e, True, f"{e.fault} ended with its cluster {ref}") for e in of_cluster]
    try:
        with connect.session(there, sources=(), kinds=()) as session:
            undone = session.call(DrillActions(session).undo_entries(of_cluster))
    except CockpitError as error:
        return [
            _row(entry, False, f"{ref} cannot be reached: {error.what}") for entry in of_cluster
        ]
    return [_row(one.entry, one.error is None, interrupted.outcome(one)) for one in undone]


def _place(ref: ClusterRef) -> Place:
    if ref.backend == "local":
        return Place(local=True, cluster=ref.name)
    if ref.backend == "address":
        return Place(address=ref.name)
    if ref.backend == "ssh":
        return Place(hosts=ref.context)
    return Place(context=ref.context, namespace=ref.namespace, cluster=ref.name)


def _is_down(ref: ClusterRef) -> bool:
    from cockpit.backends.local import list_clusters

    return ref.name not in [cluster.name for cluster in list_clusters()]


def _plan(entry: Entry, now_s: float) -> str:
    return f"On {entry.cluster}: {interrupted.described(entry, now_s)}, if it still applies."


def _row(entry: Entry, undone: bool, text: str) -> dict[str, Any]:
    return {
        "name": entry.drill_id,
        "fault": entry.fault,
        "target": entry.target,
        "cluster": str(entry.cluster),
        "undone": undone,
        "message": text,
    }


def _show(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    if (args.output or "table") != "table":
        tables.print_rows(rows, (), args.output)
    elif not rows:
        print("There is nothing to undo.")
    for row in rows:
        if (args.output or "table") == "table":
            print(row["message"])
        elif not row["undone"]:
            log(row["message"])
