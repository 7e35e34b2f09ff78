"""`cockpit recordings`: the recorded runs, with tags and notes; `compare` shows two, and `import`
makes recordings of the runs of a deleted cluster."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

from cockpit.cli.options import confirm
from cockpit.cli.output import tables
from cockpit.cli.output.streams import log
from cockpit.config import paths
from cockpit.model.error import UsageError
from cockpit.recorder import file
from cockpit.recorder.reading import annotation
from cockpit.recorder.reading.library import Library, Recorded

ACTIONS = ("list", "compare", "tag", "untag", "note", "import", "delete", "path")
IMPORTED = "history-server"
"""The tag of recordings that were imported from there."""
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
    "tags",
    "note",
)
WIDE = (
    *COLUMNS[:-2],
    "cluster",
    "job",
    "loss",
    "samples_per_s",
    "goodput_percent",
    *COLUMNS[-2:],
)


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=ACTIONS,
        help="compare: what differs between two; tag, untag, note: annotate one; import: record "
        "the runs of a deleted cluster; delete: delete files; path: print the directory "
        "(default: list)",
    )
    parser.add_argument(
        "name",
        nargs="*",
        help="a recording's name, run or file; compare takes two. tag, untag: then the tags. "
        "note: then the text, without which the note is removed. import: a session of KubeRay's "
        "History Server (default: the newest of --cluster)",
    )
    parser.add_argument(
        "--tag", action="append", default=[], metavar="TAG", help="only with this tag; repeatable"
    )
    parser.add_argument(
        "--filter",
        default="",
        metavar="TEXT",
        help="only recordings that contain this text, or match a comparison of a field of -o "
        "json, such as 'state=errored goodput_percent<80'",
    )
    parser.add_argument(
        "--sort", metavar="COLUMN", help="by a field of -o json, the largest or newest first"
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
    if args.action == "import":
        return _import(args, library)
    if args.action in ("tag", "untag", "note"):
        return _annotate(args, library)
    if args.name:
        raise UsageError("cockpit recordings list takes no name.", todo="See: cockpit replay NAME")
    wanted = set(args.tag)
    rows = [row_of(one) for one in library.list() if wanted <= set(one.annotation.tags)]
    rows = _filtered(rows, args.filter)
    tables.print_rows(
        _sorted(rows, args.sort) if args.sort else rows,
        WIDE if args.wide else COLUMNS,
        args.output,
        empty=f"There are no {'such ' if wanted or args.filter else ''}recordings in "
        f"{library.directory}.",
    )
    return 0


def _filtered(rows: Sequence[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """As the filter of the view Runs. Raises UsageError for what is not understood."""
    if not text or not rows:
        return list(rows)
    from cockpit.tui.rows.filter import parsed

    wanted = parsed(text, {name: name for name in rows[0]})
    if wanted.problem:
        raise UsageError(f"--filter is not understood: {wanted.problem}.")
    return [
        row
        for row in rows
        if wanted.holds(
            lambda name, row=row: _value(row[name]),  # type: ignore[misc]
            lambda mark: False,
            lambda row=row: "\n".join(map(str, row.values())).casefold(),  # type: ignore[misc]
        )
    ]


def _value(value: object) -> float | str | None:
    """As a filter compares it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return None if value is None else str(value)


def _sorted(rows: Sequence[dict[str, Any]], by: str) -> list[dict[str, Any]]:
    """The largest first, those without a value last. Raises UsageError."""
    if rows and by not in rows[0]:
        raise UsageError(f"There is no column {by!r}.", f"Available: {', '.join(rows[0])}.")

    def key(row: dict[str, Any]) -> tuple[bool, float, str]:
        value = row[by]
        number = value if isinstance(value, int | float) else -math.inf
        return value not in (None, "", []), number, str(value)

    return sorted(rows, key=key, reverse=True)


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
        "tags": one.annotation.tags,
        "note": one.note,
    }


def _compare(args: argparse.Namespace, library: Library) -> int:
    """Print what differs between two runs: settings, versions and nodes, and each metric."""
    from cockpit.cli.read.experiments import print_comparison
    from cockpit.recorder.reading.tracked import tracked

    if len(args.name) != 2:
        raise UsageError(
            "cockpit recordings compare takes two recordings.",
            todo="For example: cockpit recordings compare RUN OTHER; see: cockpit recordings",
        )
    first, second = (tracked(library.find(name)) for name in args.name)
    print_comparison(first, second, args.output)
    return 0


def _import(args: argparse.Namespace, library: Library) -> int:
    """Record the runs of a session of the History Server, and list the recordings."""
    from cockpit.cli.options import history
    from cockpit.insight.metrics.summary import summary
    from cockpit.recorder.writing import past_run

    if len(args.name) > 1:
        raise UsageError("cockpit recordings import takes one session.")
    found = history.read(args.where, *args.name)
    session = found.session
    if not found.store.runs:
        raise UsageError(
            f"The session {session.name} of RayCluster {session.cluster} has no run.",
            found.missing or "No driver of it sent telemetry, and Ray Train reported no run.",
            f"Its jobs: cockpit why --history -n {session.namespace} --cluster {session.cluster}",
        )
    paths_made = []
    for of in found.store.runs.values():
        path = library.path_of(of.id)
        if path.exists():
            log(f"Run {of.name or of.id} is recorded already: {path.stem}")
            continue
        if args.dry_run:
            log(f"Record run {of.name or of.id}: {path.stem}")
            continue
        past_run.write(path, summary(found.store, of), found.events)
        annotation.write(path, annotation.checked([IMPORTED], ""))
        paths_made.append(path)
    if found.missing:
        log(f"Not everything could be read: {found.missing}")
    if args.dry_run:
        log("Dry run: nothing was changed.")
        return 0
    rows = [row_of(one) for one in library.list() if one.path in paths_made]
    tables.print_rows(rows, COLUMNS, args.output, empty="No new runs.")
    return 0


def _annotate(args: argparse.Namespace, library: Library) -> int:
    """Change the tags or the note of one recording, and print them."""
    name, *texts = args.name or [""]
    if not name or (not texts and args.action != "note"):
        raise UsageError(
            f"cockpit recordings {args.action} takes a recording and "
            f"{'a text' if args.action == 'note' else 'tags'}.",
            todo=f"For example: cockpit recordings {args.action} RUN baseline",
        )
    path = library.find(name)
    before = annotation.read(path)
    tags, note = list(before.tags), before.note
    if args.action == "note":
        note = " ".join(texts)
    elif args.action == "tag":
        tags += texts
    else:
        tags = [tag for tag in tags if tag not in texts]
    after = annotation.checked(tags, note)
    if args.dry_run:
        log(f"{path.stem}: tags: {', '.join(after.tags) or 'none'}; note: {after.note or 'none'}")
        log("Dry run: nothing was changed.")
        return 0
    annotation.write(path, after)
    found = {"name": path.stem, "tags": after.tags, "note": after.note}
    tables.print_rows([found], tuple(found), args.output)
    return 0


def _delete(args: argparse.Namespace, library: Library) -> int:
    if not args.name:
        raise UsageError("Which recording?", todo="cockpit recordings lists them.")
    found = [library.find(name) for name in args.name]
    for path in found:
        if path.suffix != file.SUFFIX:
            raise UsageError(f"{path} is not a recording.", todo="cockpit recordings lists them.")
    plan = [f"Delete {path} permanently." for path in found]
    if not confirm.confirmed(args, plan, does="deletes recordings"):
        return confirm.not_confirmed(args)
    for path in found:
        library.delete(path)
    return 0
