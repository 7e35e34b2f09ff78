"""`cockpit drill undo`: take back what drills have left whose cockpit was killed."""

from __future__ import annotations

import argparse
from typing import Any

from cockpit.cli import confirm, connect, output
from cockpit.cli.place import Place
from cockpit.cli.streams import tell
from cockpit.drill_actions import DrillActions
from cockpit.drills.journal import Entry, Journal
from cockpit.drills.orphans import is_of, words
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError, ExitCode, UsageError


def run(args: argparse.Namespace) -> int:
    journal = Journal()
    left = [entry for entry in journal.orphans() if is_of(entry, args.name)]
    if args.name and not left:
        going = [entry for entry in journal.entries() if is_of(entry, args.name)]
        if going:
            raise UsageError(
                f"Drill {args.name} goes on, in process {going[0].pid}.",
                "It undoes itself at its end.",
                f"End it with Ctrl-C there, or: kill -INT {going[0].pid}",
            )
        raise UsageError(f"Drill {args.name} has left nothing.", todo="See: cockpit drill history")
    if not left:
        _show(args, [])
        return int(ExitCode.DONE)
    if not confirm.confirmed(args, [line for entry in left for line in _plan(entry)]):
        return int(ExitCode.DONE if args.dry_run else ExitCode.FAILED)
    rows, failed = [], False
    for ref in dict.fromkeys(entry.cluster for entry in left):
        for row in _on(args, ref, journal):
            rows.append(row)
            failed = failed or not row["undone"]
    _show(args, rows)
    return int(ExitCode.FAILED if failed else ExitCode.DONE)


def _on(args: argparse.Namespace, ref: ClusterRef, journal: Journal) -> list[dict[str, Any]]:
    there = argparse.Namespace(**vars(args))
    there.where = _place(ref)
    of_cluster = [e for e in journal.orphans() if e.cluster == ref and is_of(e, args.name)]
    if ref.backend == "local" and _is_down(ref):
        for entry in of_cluster:
            journal.forget(entry)
        return [_row(e, True, f"{e.fault} is gone with its cluster {ref}") for e in of_cluster]
    try:
        with connect.session(there, sources=(), kinds=()) as session:
            mended = session.call(DrillActions(session).mend(journal, args.name))
    except CockpitError as error:
        return [_row(entry, False, f"{ref} is not reached: {error.what}") for entry in of_cluster]
    return [_row(one.entry, one.error is None, words(one)) for one in mended]


def _place(ref: ClusterRef) -> Place:
    if ref.backend == "local":
        return Place(local=True, cluster=ref.name)
    if ref.backend == "address":
        return Place(address=ref.name)
    return Place(context=ref.context, namespace=ref.namespace, cluster=ref.name)


def _is_down(ref: ClusterRef) -> bool:
    from cockpit.backends.local import list_clusters

    return ref.name not in [cluster.name for cluster in list_clusters()]


def _plan(entry: Entry) -> list[str]:
    return [f"On {entry.cluster}, drill {entry.drill_id}: {undo.text}." for undo in entry.undo]


def _row(entry: Entry, undone: bool, said: str) -> dict[str, Any]:
    return {
        "name": entry.drill_id,
        "fault": entry.fault,
        "target": entry.target,
        "cluster": str(entry.cluster),
        "undone": undone,
        "message": said,
    }


def _show(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    if (args.output or "table") != "table":
        output.print_rows(rows, (), args.output)
    elif not rows:
        print("No drill has left anything.")
    for row in rows:
        if (args.output or "table") == "table":
            print(row["message"])
        elif not row["undone"]:
            tell(row["message"])
