"""`cockpit recordings`: the recorded runs; `delete` removes one, `compare` shows two."""

from __future__ import annotations

import argparse
from typing import Any

from cockpit.cli.options import confirm
from cockpit.cli.output import tables
from cockpit.config import paths
from cockpit.model.error import UsageError
from cockpit.recorder.reading.library import Library, Recorded

ACTIONS = ("list", "compare", "delete", "path")
COLUMNS = (
    "name",
    "run",
    "state",
    "world_size",
    "started_s",
    "duration_s",
    "attempts",
    "steps",
    "size_mb",
    "note",
)


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("action", nargs="?", default="list", choices=ACTIONS)
    parser.add_argument(
        "name",
        nargs="*",
        help="delete, compare: a recording's name, run or file; compare takes two",
    )
    tables.arguments(parser, tables.LISTS)
    confirm.arguments(parser)


def run(args: argparse.Namespace) -> int:
    library = Library(paths.state_dir())
    if args.action == "path":
        print(library.directory)
        return 0
    if args.action == "delete":
        return _delete(args, library)
    if args.action == "compare":
        return _compare(args, library)
    if args.name:
        raise UsageError("cockpit recordings list takes no name.", todo="See: cockpit replay NAME")
    tables.print_rows(
        [row_of(one) for one in library.list()],
        COLUMNS,
        args.output,
        empty=f"There are no recordings in {library.directory}.",
    )
    return 0


def row_of(one: Recorded) -> dict[str, Any]:
    """One recording as a JSON-ready object."""
    summary: dict[str, Any] = tables.as_json(one.summary)
    return summary | {
        "name": one.name,
        "run": one.summary.name,
        "duration_s": round(one.end_s - one.begin_s, 1) if one.begin_s else None,
        "begin_s": one.begin_s or None,
        "end_s": one.end_s or None,
        "size_bytes": one.size_bytes,
        "size_mb": round(one.size_bytes / 1e6, 1),
        "recording": one.recording,
        "path": str(one.path),
        "trouble": one.trouble,
        "note": one.trouble or _note(one),
    }


def _note(one: Recorded) -> str:
    if one.recording:
        return "being recorded"
    # The last recorded state: later states are not known.
    return "" if one.summary.state.is_over else "left before its end"


def _compare(args: argparse.Namespace, library: Library) -> int:
    """Print what differs between two runs: settings, versions and nodes, and each metric."""
    from cockpit.cli.read.experiments import print_comparison
    from cockpit.insight.metrics.recorded_run import as_tracked
    from cockpit.recorder.reading.recording import opened

    if len(args.name) != 2:
        raise UsageError(
            "cockpit recordings compare takes two recordings.",
            todo="For example: cockpit recordings compare RUN OTHER; see: cockpit recordings",
        )
    found = []
    for path in map(library.find, args.name):
        with opened(path) as recording:
            store = recording.store()
            run = store.runs.get(recording.run.run_id)
        if run is None:
            raise UsageError(f"The recording {path.stem} has no run.", recording.damage)
        found.append(as_tracked(store, run))
    print_comparison(found[0], found[1], args.output)
    return 0


def _delete(args: argparse.Namespace, library: Library) -> int:
    if not args.name:
        raise UsageError("Which recording?", todo="cockpit recordings lists them.")
    found = [library.find(name) for name in args.name]
    if not confirm.confirmed(args, [f"Delete {path}, for good." for path in found]):
        return confirm.not_confirmed(args)
    for path in found:
        library.delete(path)
    return 0
