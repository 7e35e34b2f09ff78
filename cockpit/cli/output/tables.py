"""Print what was read: as a table for people, as JSON, YAML or by a template for programs."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, TextIO

from msgspec import Struct
from msgspec.structs import asdict

from cockpit.cli.output import links
from cockpit.format import moment
from cockpit.model.text import one_line

Row = Mapping[str, Any]

TIMES = ("at_s", "started_s", "ended_s", "last_s", "created_s")
"""Columns of Unix times, which a table shows as the time here."""
JSON = ("json", "jsonl")
OBJECTS = ("table", *JSON, "yaml", "jsonpath")
LISTS = ("table", "wide", "name", *JSON, "yaml", "jsonpath")
"""As kubectl has them; `jsonpath` takes a template after an equals sign."""


def arguments(parser: argparse.ArgumentParser, formats: Sequence[str] = OBJECTS) -> None:
    """Add `-o` as `args.output`. `-o wide` is a table, with `args.wide`."""
    shown = [name if name != "jsonpath" else "jsonpath=TEMPLATE" for name in formats]
    action = parser.add_argument(
        "-o",
        "--output",
        action=_Output,
        const=tuple(formats),
        default="table",
        metavar="FORMAT",
        help=f"{', '.join(shown)} (default: table)",
    )
    action.completer = lambda **_: shown  # type: ignore[attr-defined]
    parser.set_defaults(wide=False, format_given=False)


def watch_argument(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("-w", "--watch", action="store_true", help=f"follow: {help}")


def watches_table(args: argparse.Namespace) -> bool:
    """Whether --watch prints a table: on a terminal, or where -o selects it."""
    return args.output == "table" and (args.format_given or sys.stdout.isatty())


class _Output(argparse.Action):
    """Accept one of the formats in `const`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        name, equals, template = str(values).partition("=")
        if name not in (self.const or ()) or bool(equals) != (name == "jsonpath"):
            known = ", ".join(self.const or ())
            raise argparse.ArgumentError(self, f"no format {values!r}; available: {known}")
        if equals:
            from cockpit.cli.output import jsonpath

            jsonpath.parsed(template)  # an error is reported before anything is read
        namespace.format_given = True
        namespace.wide = name == "wide"
        namespace.output = "table" if namespace.wide else str(values)


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


def print_object(value: object, output: str) -> None:
    """One object in a format other than the table."""
    name, _, template = output.partition("=")
    match name:
        case "json":
            print_json(value)
        case "jsonl":
            print_json(value, indent=None)
        case "yaml":
            from cockpit.model.decoding import limited_yaml

            print(limited_yaml.dumps(as_json(value)), end="")
        case "jsonpath":
            from cockpit.cli.output import jsonpath

            text = jsonpath.rendered(jsonpath.parsed(template), as_json(value))
            print(text, end="" if text.endswith("\n") else "\n")
        case _:
            raise ValueError(f"no format for one object: {output}")


def print_rows(
    rows: Sequence[Row],
    columns: Sequence[str],
    output: str,
    *,
    empty: str = "Nothing.",
    name_of: Callable[[Row], object] = lambda row: row["name"],
) -> None:
    """A list: one array, one object a line, names, or a table of `columns` (rows may hold more).

    A template takes the list as `items`, as in kubectl.
    """
    if output == "jsonl":
        for row in rows:
            print_json(row, indent=None)
    elif output == "name":
        for row in rows:
            print(name_of(row))
    elif output.startswith("jsonpath="):
        print_object({"items": rows}, output)
    elif output != "table":
        print_object(rows, output)
    elif not rows:
        print(empty)
    else:
        print_table(rows, columns)


def print_table(rows: Iterable[Row], columns: Sequence[str], file: TextIO | None = None) -> None:
    """Columns aligned, numbers to the right, titles in upper case as kubectl has them.

    On a terminal, the first column of a row with a `url` or a `page` links to it.
    """
    Table(columns, file).print(rows)


class Table:
    """A table as `print_table` prints it, in one or several parts under the same titles."""

    def __init__(
        self,
        columns: Sequence[str],
        file: TextIO | None = None,
        longest: Mapping[str, str] = {},
    ) -> None:
        """`longest`: by column, the longest text of all parts, where it is known."""
        self._columns = columns
        self._stream = file or sys.stdout
        self._least = [len(longest.get(column, "")) for column in columns]
        self._widths: list[int] = []
        self._right: list[bool] = []

    def cells(self, row: Row) -> list[str]:
        return [_cell(value_of(row, column), column) for column in self._columns]

    def print(self, rows: Iterable[Row]) -> None:
        rows, places = list(rows), range(len(self._columns))
        lines = [self.cells(row) for row in rows]
        urls = [str(row.get("url") or row.get("page") or "") for row in rows]
        if not self._widths:
            self._right = [all(_is_number(line[i]) for line in lines) for i in places]
            self._widths = self._least
            lines, urls = [self._titles(), *lines], ["", *urls]
        self._widths = [max([self._widths[i], *(len(line[i]) for line in lines)]) for i in places]
        for line, url in zip(lines, urls, strict=True):
            self._print(line, url)

    def _titles(self) -> list[str]:
        return [
            (column.removesuffix("_s") if column in TIMES else column.rpartition(".")[2]).upper()
            for column in self._columns
        ]

    def _print(self, line: Sequence[str], url: str) -> None:
        parts = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, self._widths, self._right, strict=True)
        ]
        text = "  ".join(parts).rstrip()
        if url:
            links.write(first := text[: len(parts[0])], url, self._stream)
            text = text[len(first) :]
        print(text, file=self._stream)


EVENTS = ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class ChangedRows:
    """Prints the rows that changed, as `kubectl get --watch --output-watch-events` does.

    A row is identified by its `name` and `id`. With `is_log`, rows are only added, and the oldest
    leave the list.
    """

    def __init__(self, columns: Sequence[str], *, is_log: bool = False) -> None:
        events = {"event": max(EVENTS, key=len)}
        self._table = Table(columns) if is_log else Table(("event", *columns), longest=events)
        self._is_log = is_log
        self._rows: dict[tuple[object, ...], Row] = {}

    def print(self, rows: Iterable[Row]) -> None:
        """Print those with another value in a shown column than at the last call."""
        before, self._rows = self._rows, {self._key(row): row for row in rows}
        changed = [
            {**row, "event": MODIFIED if key in before else ADDED}
            for key, row in self._rows.items()
            if key not in before or self._table.cells(row) != self._table.cells(before[key])
        ]
        changed += [
            {**row, "event": DELETED}
            for key, row in before.items()
            if key not in self._rows and not self._is_log
        ]
        if changed:
            self._table.print(changed)
            sys.stdout.flush()

    def _key(self, row: Row) -> tuple[object, ...]:
        return tuple(self._table.cells(row)) if self._is_log else (row["name"], row.get("id"))


def value_of(row: Row, column: str) -> object:
    """The value of a column; `resources.cpus` is that of an object in the row."""
    outer, dot, inner = column.partition(".")
    return (row.get(outer) or {}).get(inner) if dot else row.get(column)


def _cell(value: object, column: str = "") -> str:
    if value is None or value == "":
        return "–"
    if column in TIMES and isinstance(value, float):
        return moment(value)
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
