"""Print what was read: as a table for people, as JSON for programs."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, TextIO

from msgspec import Struct
from msgspec.structs import asdict

from cockpit.model.text import one_line

Row = Mapping[str, Any]

TIMES = ("at_s", "started_s", "ended_s", "last_s")
"""Columns of Unix times, which a table shows as the time here."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "jsonl"),
        default="table",
        help="output format (default: table)",
    )


def as_json(value: object) -> Any:
    """Structs, enums and collections as what JSON has; non-finite numbers as strings."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Struct):
        return {name: as_json(item) for name, item in asdict(value).items()}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [as_json(item) for item in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        # Six digits that matter; of Unix times, microseconds.
        return round(value, 6) if abs(value) >= 1e6 else float(f"{value:.6g}")
    return value


def print_json(value: object, *, indent: int | None = 2) -> None:
    print(json.dumps(as_json(value), indent=indent, allow_nan=False), flush=indent is None)


def print_rows(
    rows: Sequence[Row], columns: Sequence[str], output: str, *, empty: str = "Nothing."
) -> None:
    """A list: one array, one object a line, or a table of `columns` (rows may hold more)."""
    if output == "json":
        print_json(rows)
    elif output == "jsonl":
        for row in rows:
            print_json(row, indent=None)
    elif not rows:
        print(empty)
    else:
        print_table(rows, columns)


def print_table(rows: Iterable[Row], columns: Sequence[str], file: TextIO | None = None) -> None:
    """Columns aligned, numbers to the right, titles in upper case as kubectl has them."""
    cells = [[_cell(row.get(column), column) for column in columns] for row in rows]
    titles = [
        column.removesuffix("_s").upper() if column in TIMES else column.upper()
        for column in columns
    ]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    right = [all(_is_number(row[i]) for row in cells) for i in range(len(columns))]
    for line in [titles, *cells]:
        parts = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        ]
        print("  ".join(parts).rstrip(), file=file or sys.stdout)


def _cell(value: object, column: str = "") -> str:
    if value is None or value == "":
        return "–"
    if column in TIMES and isinstance(value, float):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Enum):
        return _one_line(str(value.value))
    if isinstance(value, (list, tuple)):
        return _one_line(",".join(map(str, value))) or "–"
    return _one_line(str(value))


def _one_line(text: str) -> str:
    """Clean before the columns are measured; a line end in a name must not begin another row."""
    return text if text.isprintable() else one_line(text, limit=len(text))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == "–"
    return True
