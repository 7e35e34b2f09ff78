"""Tables as files of a directory: Parquet, CSV, or lines of JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TextIO

from cockpit.model.error import CockpitError
from cockpit.recorder.reading.export import Columns, Row, plain

ROWS_AT_ONCE = 20_000


class TableFile(Protocol):
    def write(self, rows: list[Row]) -> None: ...

    def close(self) -> None: ...


class CsvFile:
    def __init__(self, path: Path, columns: Columns) -> None:
        self._file: TextIO = path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file)
        self._writer.writerow(columns)

    def write(self, rows: list[Row]) -> None:
        self._writer.writerows(rows)

    def close(self) -> None:
        self._file.close()


class JsonlFile:
    """Fields that are None are left out."""

    def __init__(self, path: Path, columns: Columns) -> None:
        self._file: TextIO = path.open("w", encoding="utf-8")
        self._names = tuple(columns)

    def write(self, rows: list[Row]) -> None:
        for row in rows:
            pairs = zip(self._names, row, strict=True)
            line = {name: plain(value) for name, value in pairs if value is not None}
            self._file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")

    def close(self) -> None:
        self._file.close()


class ParquetFile:
    def __init__(self, path: Path, columns: Columns) -> None:
        pa, pq = _pyarrow()
        types = {float: pa.float64(), int: pa.int64(), str: pa.string()}
        self._pa = pa
        self._schema = pa.schema([(name, types[kind]) for name, kind in columns.items()])
        self._kinds = tuple(columns.values())
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")

    def write(self, rows: list[Row]) -> None:
        arrays = [
            self._pa.array([None if value is None else kind(value) for value in column], field.type)
            for column, kind, field in zip(
                zip(*rows, strict=True), self._kinds, self._schema, strict=True
            )
        ]
        self._writer.write_table(self._pa.Table.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


FORMATS: Mapping[str, Callable[[Path, Columns], TableFile]] = {
    "parquet": ParquetFile,
    "csv": CsvFile,
    "jsonl": JsonlFile,
}


def write(
    rows: Iterable[tuple[str, Row]], tables: Mapping[str, Columns], how: str, directory: Path
) -> dict[str, int]:
    """One file a table that has rows. How many rows each has. Raises CockpitError and OSError."""
    if how == "parquet":
        _pyarrow()  # before anything is written
    directory.mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}
    waiting: dict[str, list[Row]] = {}
    files: dict[str, TableFile] = {}

    def flush(name: str) -> None:
        if name not in files:
            files[name] = FORMATS[how](directory / f"{name}.{how}", tables[name])
            stack.callback(files[name].close)
        files[name].write(waiting[name])
        counts[name] = counts.get(name, 0) + len(waiting[name])
        waiting[name] = []

    with ExitStack() as stack:
        for name, row in rows:
            held = waiting.setdefault(name, [])
            held.append(row)
            if len(held) >= ROWS_AT_ONCE:
                flush(name)
        for name, held in waiting.items():
            if held:
                flush(name)
    return counts


def _pyarrow() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise CockpitError(
            "Parquet files need pyarrow, which is not installed here.",
            todo="pip install 'cockpit[export]', or take --format csv or jsonl.",
        ) from error
