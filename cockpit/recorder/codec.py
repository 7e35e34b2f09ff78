"""Encode and decode events as lines of JSON.

A line is `[kind, at_s, source, fields]`, with a fifth item if the event belongs to another time
than `at_s`. Fields with their default value are left out: a newer reader uses its defaults for
missing fields, and an older one skips unknown ones. A tuple of structs is a table by columns,
`[rows, {column: values}, {column: value of all rows}]`: a tick of 64 ranks contains `step_time_s`
once. NaN and the infinities are as in Python's json.

Files may come from other hosts: control characters are removed from text, and a value that is not
of its declared type is a `CodecError`.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import repeat
from typing import Annotated, Any, TypeVar, Union

from msgspec import NODEFAULT, UNSET, Meta, Struct, UnsetType, convert, defstruct
from msgspec.structs import fields as fields_of

from cockpit.model import event as events
from cockpit.model.decoding.limited_json import loads
from cockpit.model.decoding.value_range import EARLIEST_S, LATEST_S
from cockpit.model.event import Event
from cockpit.model.text import clean

T = TypeVar("T")


class CodecError(ValueError):
    """A line that is not an event."""


KINDS: dict[str, type[Event]] = {
    name: kind
    for name, kind in vars(events).items()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
}
KINDS["MachinesListed"] = events.KubernetesNodesListed  # its name in earlier recordings
"""Every kind of event, by its name in a line."""
SOURCES = {"deaths": "failures"}
"""Sources that had another name in earlier recordings."""

MOMENTS = frozenset(
    {
        "at_s",
        "attempt_ended_s",
        "began_s",
        "created_s",
        "detected_s",
        "ended_s",
        "first_point_s",
        "first_step_s",
        "injected_s",
        "pod_gone_s",
        "pod_ready_s",
        "raised_s",
        "restarted_s",
        "retry_at_s",
        "started_s",
        "updated_s",
    }
)
"""Fields of the model that are Unix times; other numbers of seconds may be infinite."""
Moment = Annotated[float, Meta(ge=EARLIEST_S, le=LATEST_S)]
_MOST = (1 << 63) - 1
"""The range of SQLite, Arrow and float."""
_WHOLE = Annotated[int, Meta(ge=-_MOST, le=_MOST)] | Annotated[float, Meta(ge=-_MOST, le=_MOST)]
ROWS_AT_MOST = 100_000
"""Of one table."""
ROWS_IN_ALL = 1_000_000
"""Of all tables of a line. Tables nest, and a value that stands once counts for every row that
repeats it: a line of 100 characters would otherwise decode to 10^10 rows."""
_INVALID = (AttributeError, LookupError, TypeError, ValueError, OverflowError)


class _Line(Struct, frozen=True, array_like=True):
    kind: str
    at_s: Moment
    source: str
    fields: dict[str, Any]
    when_s: Moment | None = None


def encode(event: Event, when_s: float | None = None) -> str:
    """One line without its end. `when_s`: the moment it belongs to, where not `at_s`."""
    line: list[Any] = [type(event).__name__, event.at_s, event.source, to_plain(event)]
    if when_s is not None and when_s != event.at_s:
        line.append(when_s)
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False)


def decode(line: str) -> tuple[float, Event] | None:
    """Return the time and the event; None for a kind that this version does not know.

    Raises CodecError.
    """
    try:
        raw = loads(line)
        if "\\" in line or not line.isprintable():
            raw = _cleaned(raw)
        found = convert(raw, _Line)
        kind = KINDS.get(found.kind)
        if kind is None:
            return None
        values = _read_object(kind, found.fields, _RowBudget())
        source = SOURCES.get(found.source, found.source)
        event = kind(at_s=found.at_s, source=source, **values)
        return found.at_s if found.when_s is None else found.when_s, event
    except _INVALID as error:
        raise CodecError(f"not an event: {error}") from error


def from_plain(kind: type[T], raw: Any) -> T:
    """A struct of the model from what `to_plain` made of it. Raises CodecError."""
    try:
        return kind(**_read_object(kind, _cleaned(raw), _RowBudget()))
    except _INVALID as error:
        raise CodecError(f"not a {kind.__name__}: {error}") from error


def _cleaned(raw: Any) -> Any:
    if isinstance(raw, str):
        return raw if raw.isprintable() else "\n".join(map(clean, raw.split("\n")))
    if isinstance(raw, list):
        return list(map(_cleaned, raw))
    if isinstance(raw, dict):
        return {_cleaned(name): _cleaned(value) for name, value in raw.items()}
    return raw


class _Field(Struct, frozen=True):
    name: str
    stored: str
    """Its name in a line, which stays when the field is renamed (`rename` of the struct)."""
    default: Any
    make_default: Callable[[], Any] | None
    rows: type[Any] | None
    """The rows' class, for a tuple of structs."""
    nested: type[Any] | None
    """Its class, where it is a struct itself, or may be."""


class _Plan(Struct, frozen=True):
    """How one class is written and read."""

    fields: tuple[_Field, ...]
    values: type[Struct]
    """The JSON values of its fields, all optional; nested structs and tables are not checked."""
    columns: type[Struct]
    """The same of a table: a list for each field."""


_REQUIRED = object()


@cache
def _plan(kind: type[Any]) -> _Plan:
    fields, hints = [], []
    for item in fields_of(kind):
        if issubclass(kind, Event) and item.name in ("at_s", "source"):
            continue
        hint, rows, nested = item.type, None, None
        parts = typing.get_args(hint) or (hint,)
        if typing.get_origin(hint) is tuple and _is_struct(parts[0]):
            hint, rows = list[Any], parts[0]
        elif found := [part for part in parts if _is_struct(part)]:
            hint, nested = Union[*(dict[str, Any] if p is found[0] else p for p in parts)], found[0]
        else:
            hint = _limited(hint, Moment if item.name in MOMENTS else float)
        make = None if item.default_factory is NODEFAULT else item.default_factory
        default = _REQUIRED if item.default is NODEFAULT else item.default
        stored = item.encode_name
        fields.append(_Field(item.name, stored, make() if make else default, make, rows, nested))
        hints.append((stored, hint))
    return _Plan(
        tuple(fields),
        defstruct("Values", [(name, hint | UnsetType, UNSET) for name, hint in hints]),
        defstruct(
            "Columns",
            [(name, types.GenericAlias(list, hint) | UnsetType, UNSET) for name, hint in hints],
        ),
    )


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct)


def _limited(hint: Any, number: Any) -> Any:
    """The type hint with `number` for float, and integers within their limits."""
    parts = typing.get_args(hint)
    if not parts:
        return {int: _WHOLE, float: number}.get(hint, hint)
    origin = Union if isinstance(hint, types.UnionType) else typing.get_origin(hint)
    return origin[tuple(_limited(part, number) for part in parts)]


def to_plain(value: Any) -> dict[str, Any]:
    """A struct of the model as what JSON has."""
    found: dict[str, Any] = {}
    for item in _plan(value.__class__).fields:
        of = getattr(value, item.name)
        if item.rows is not None:
            if of or item.default is _REQUIRED:
                found[item.stored] = _table(item.rows, of) if of else []
        elif item.default is _REQUIRED or of != item.default:
            found[item.stored] = to_plain(of) if item.nested and of is not None else of
    return found


def _table(kind: Any, rows: Sequence[Any]) -> list[Any]:
    columns: dict[str, list[Any]] = {}
    same: dict[str, Any] = {}
    for item in _plan(kind).fields:
        name = item.stored
        column: list[Any] = [getattr(row, item.name) for row in rows]
        if item.default is not _REQUIRED and column.count(item.default) == len(rows):
            continue
        if item.rows is not None:
            column = [_table(item.rows, of) if of else [] for of in column]
        elif item.nested:
            column = [None if of is None else to_plain(of) for of in column]
        if column.count(column[0]) == len(rows):
            same[name] = column[0]
        else:
            columns[name] = column
    return [len(rows), columns, same]


class _RowBudget:
    """The rows that the tables of one line may still have. `repeat`: how often one row counts."""

    def __init__(self) -> None:
        self._left, self.repeat = ROWS_IN_ALL, 1

    def take(self, rows: int) -> None:
        self._left -= rows * self.repeat
        if self._left < 0:
            raise ValueError(f"more than {ROWS_IN_ALL:,} rows")


def _read_object(kind: Any, raw: Any, budget: _RowBudget) -> dict[str, Any]:
    plan = _plan(kind)
    values = convert(raw, plan.values)
    return {
        item.name: _read(item, value, budget)
        for item in plan.fields
        if (value := getattr(values, item.stored)) is not UNSET
    }


def _read(item: _Field, value: Any, budget: _RowBudget) -> Any:
    if item.rows is not None:
        return _read_table(item.rows, value, budget)
    if item.nested is not None and value is not None:
        return item.nested(**_read_object(item.nested, value, budget))
    return value


def _read_repeated(item: _Field, value: Any, budget: _RowBudget, count: int) -> Any:
    """Read a value that each of `count` rows has."""
    budget.repeat *= count
    try:
        if item.rows is None and isinstance(value, (tuple, list, dict)):
            budget.take(len(value))
        return _read(item, value, budget)
    finally:
        budget.repeat //= count


def _read_table(kind: Any, raw: list[Any], budget: _RowBudget) -> tuple[Any, ...]:
    if not raw:
        return ()
    count, columns, same = raw
    if type(count) is not int or not 0 < count <= ROWS_AT_MOST:
        raise TypeError(f"a table of {count!r} rows")
    budget.take(count)
    plan = _plan(kind)
    columns, same = convert(columns, plan.columns), convert(same, plan.values)
    parts: list[Iterable[Any]] = []
    for item in plan.fields:
        column, value = getattr(columns, item.stored), getattr(same, item.stored)
        if column is not UNSET:
            if len(column) != count:
                raise ValueError(f"{len(column)} of {count} values of {item.name}")
            nested = item.rows or item.nested
            parts.append([_read(item, each, budget) for each in column] if nested else column)
        elif value is not UNSET:
            parts.append(repeat(_read_repeated(item, value, budget, count), count))
        elif item.make_default is not None:
            parts.append([item.make_default() for _ in range(count)])
        elif item.default is _REQUIRED:
            raise KeyError(item.name)
        else:
            parts.append(repeat(item.default, count))
    return tuple(map(kind, *parts))
