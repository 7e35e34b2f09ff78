"""`cockpit export FILE|RUN`: a recording as tables in files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cockpit import paths
from cockpit.cli import output


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
    output.arguments(parser)


def run(args: argparse.Namespace) -> int:
    from cockpit.recorder import table_files
    from cockpit.recorder.export import TABLES, rows
    from cockpit.recorder.library import Library
    from cockpit.recorder.recording import opened

    path = Library(paths.state_dir()).find(args.recording)
    directory = Path(args.out or path.stem)
    with opened(path) as recording:
        counts = table_files.write(rows(recording), TABLES, args.format, directory)
        damage = recording.damage
    found = [
        {"name": name, "rows": counts[name], "path": str(directory / f"{name}.{args.format}")}
        for name in TABLES
        if name in counts
    ]
    output.print_rows(found, ("name", "rows", "path"), args.output, empty="It holds no events.")
    if damage:
        print(f"The recording is damaged, this is the rest: {damage}.", file=sys.stderr)
    return 0
