"""A recording as tables, for other tools."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TextIO

from msgspec.structs import astuple

from cockpit.model.error import CockpitError
from cockpit.model.event import Event, LogLines, MetricsReported, RankSampled
from cockpit.model.run import RankSample, Spread
from cockpit.recorder.codec import encode
from cockpit.recorder.reading.recording import Recording
from cockpit.store.run import RunView
from cockpit.store.store import Store

Columns = Mapping[str, type]
"""Name and type of each column: float, int or str. Each value may be None too."""


def _fields(kind: type[Any]) -> dict[str, type]:
    names = {"float": float, "int": int, "str": str}
    return {
        name: names[hint.removesuffix(" | None")] for name, hint in kind.__annotations__.items()
    }


TABLES: Mapping[str, Columns] = {
    "samples": {"run_id": str, **_fields(RankSample)},
    "spreads": {"run_id": str, "at_s": float, "attempt": int, **_fields(Spread)},
    "curves": {"run_id": str, "metric": str, "at_s": float, "value": float},
    "reports": {
        "run_id": str, "at_s": float, "attempt": int, "rank": int, "metric": str, "value": float
    },
    "attempts": {
        "run_id": str, "attempt": int, "started_s": float, "ended_s": float, "reason": str,
        "ranks": int, "first_step": int, "last_step": int,
    },
    "phases": {"run_id": str, "attempt": int, "phase": str, "entered_s": float, "left_s": float},
    "checkpoints": {
        "run_id": str, "at_s": float, "step": int, "path": str, "size_bytes": int, "took_s": float
    },
    "events": {"moment_s": float, "at_s": float, "source": str, "kind": str, "fields": str},
    "logs": {"at_s": float, "stream": str, "line": str},
}  # fmt: skip
"""The exported tables. `rank` of a report is None for the mean over the ranks; `curves` are those
of the run, over all ranks, as in the UI; `fields` of an event is JSON."""

Row = tuple[Any, ...]


def rows(recording: Recording) -> Iterator[tuple[str, Row]]:
    """Every row of every table, each with its table's name; in order of time within a table."""
    store = Store()
    for moment_s, event in recording.timed():
        store.apply(event)
        yield from _of_event(moment_s, event)
    for run in store.runs.values():
        yield from _of_run(run)


def _of_event(moment_s: float, event: Event) -> Iterator[tuple[str, Row]]:
    if isinstance(event, RankSampled):
        for sample in event.samples:
            yield "samples", (event.run_id, *astuple(sample))
        for spread in event.spreads:
            yield "spreads", (event.run_id, event.at_s, event.attempt, *astuple(spread))
        return
    if isinstance(event, LogLines):
        for line in event.lines:
            yield "logs", (event.at_s, event.stream, line)
        return
    kind, at_s, source, fields = json.loads(encode(event))
    yield "events", (moment_s, at_s, source, kind, _strict(fields))
    if isinstance(event, MetricsReported):
        where = (event.run_id, event.at_s, event.attempt)
        for name, value in event.metrics.items():
            yield "reports", (*where, None, name, value)
        for of in event.ranks:
            for name, value in of.metrics.items():
                yield "reports", (*where, of.rank, name, value)


def _of_run(run: RunView) -> Iterator[tuple[str, Row]]:
    for number, attempt in sorted(run.attempts.items()):
        reported = (
            attempt.started_s,
            attempt.ended_s,
            attempt.reason,
            len(attempt.placements) or None,
        )
        yield "attempts", (run.id, number, *reported, attempt.first_step, attempt.last_step)
    ends = [at_s for at_s, _, _ in run.phases[1:]] + [run.ended_s]
    for (at_s, number, phase), left_s in zip(run.phases, ends, strict=False):
        yield "phases", (run.id, number, phase.value, at_s, left_s)
    for at_s, made in run.checkpoints:
        yield "checkpoints", (run.id, at_s, made.step, made.path, made.size_bytes, made.took_s)
    for metric in run.curves:
        for at_s, value in run.curves[metric]:
            yield "curves", (run.id, metric, at_s, value)


def _strict(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """NaN and the infinities as the strings "nan", "inf" and "-inf": JSON has no such numbers."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


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
            batch = waiting.setdefault(name, [])
            batch.append(row)
            if len(batch) >= ROWS_AT_ONCE:
                flush(name)
        for name, batch in waiting.items():
            if batch:
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
