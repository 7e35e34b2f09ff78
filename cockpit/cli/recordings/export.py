"""`cockpit export FILE|RUN`: a recording as tables in files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cockpit.cli.output import tables
from cockpit.config import paths


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("recording", help="a recording's file, its name, its run or its job")
    parser.add_argument(
        "--format",
        choices=("parquet", "csv", "jsonl"),
        default="parquet",
        help="format of the files (default: parquet)",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        default="",
        help="directory to write (default: named after the recording)",
    )
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    from cockpit.recorder.reading import export
    from cockpit.recorder.reading.export import TABLES, rows
    from cockpit.recorder.reading.library import Library
    from cockpit.recorder.reading.recording import opened

    path = Library(paths.state_dir()).find(args.recording)
    directory = Path(args.out or path.stem)
    with opened(path) as recording:
        counts = export.write(rows(recording), TABLES, args.format, directory)
        damage = recording.damage
    found = [
        {"name": name, "rows": counts[name], "path": str(directory / f"{name}.{args.format}")}
        for name in TABLES
        if name in counts
    ]
    tables.print_rows(found, ("name", "rows", "path"), args.output, empty="It holds no events.")
    if damage:
        print(
            f"The recording is damaged; only its readable part was exported: {damage}.",
            file=sys.stderr,
        )
    return 0
