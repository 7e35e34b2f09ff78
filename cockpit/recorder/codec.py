"""Events as lines of JSON, and back.

A line is `[kind, at_s, source, fields]`, with a fifth item where the event belongs to another time
than `at_s`. A field that has its default is left out, so a reader that knows more fields than the
writer did gives them their defaults, and one that knows fewer skips the rest. A tuple of
structs is a table by columns, `[rows, {column: values}, {column: value of all rows}]`: a tick
of 64 ranks then holds `step_time_s` once. NaN and the infinities are as Python's json has them.

Files come from other machines: text is cleaned of control characters here too, and a value that is
not of its declared type is a `CodecError`.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from itertools import repeat
from typing import Any

from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo
from msgspec.structs import fields as fields_of

from cockpit.model import event as events
from cockpit.model.event import Event
from cockpit.model.limited_json import loads
from cockpit.model.text import clean
from cockpit.model.value_range import moment_s

Read = Callable[[Sequence[Any]], Iterable[Any]]
"""From a column of JSON values to a column of the field's type."""


class CodecError(ValueError):
    """A line that is not an event."""


KINDS: dict[str, type[Event]] = {
    name: kind
    for name, kind in vars(events).items()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
}
"""Every kind of event, by its name in a line."""


def encode(event: Event, when_s: float | None = None) -> str:
    """One line without its end. `when_s`: the moment it belongs to, where not `at_s`."""
    line: list[Any] = [type(event).__name__, event.at_s, event.source, _object(event)]
    if when_s is not None and when_s != event.at_s:
        line.append(when_s)
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False)


def decode(line: str) -> tuple[float, Event] | None:
    """The moment and the event; None for a kind that this version does not know.

    Raises CodecError.
    """
    try:
        raw = loads(line)
        kind = KINDS.get(raw[0])
        if kind is None:
            return None
        at_s, source, values = raw[1:4]
        when_s = raw[4] if len(raw) > 4 else at_s
        _moments((at_s, when_s))
        return when_s, kind(at_s=at_s, source=_text(source), **_read_object(kind, values))
    except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise CodecError(f"not an event: {error}") from error


def to_plain(value: Any) -> Any:
    """A struct of the model as what JSON has."""
    return _object(value)


def from_plain(kind: type[Any], raw: Any) -> Any:
    """A struct of the model from what `to_plain` made of it. Raises CodecError."""
    try:
        return kind(**_read_object(kind, raw))
    except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise CodecError(f"not a {kind.__name__}: {error}") from error


class _Field(Struct, frozen=True):
    name: str
    default: Any
    make_default: Callable[[], Any] | None
    table: type[Any] | None
    """The rows' class, for a tuple of structs."""
    nested: bool
    """Whether it is a struct itself, or may be."""
    read: Read


_REQUIRED = object()
_PLANS: dict[type[Any], tuple[_Field, ...]] = {}


def _plan(kind: type[Any]) -> tuple[_Field, ...]:
    found = _PLANS.get(kind)
    if found is None:
        found = _PLANS[kind] = tuple(
            _field(item)
            for item in fields_of(kind)
            if not (issubclass(kind, Event) and item.name in ("at_s", "source"))
        )
    return found


def _field(item: FieldInfo) -> _Field:
    make = None if item.default_factory is NODEFAULT else item.default_factory
    default = _REQUIRED if item.default is NODEFAULT else item.default
    hint = item.type
    arguments = typing.get_args(hint)
    rows = arguments[0] if typing.get_origin(hint) is tuple else None
    inner = _without_none(hint)
    return _Field(
        item.name,
        make() if make is not None else default,
        make,
        rows if _is_struct(rows) else None,
        _is_struct(inner),
        _moment_reader(hint) if item.name in MOMENTS else _reader(hint),
    )


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct)


def _without_none(hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        return next(part for part in typing.get_args(hint) if part is not types.NoneType)
    return hint


def _object(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in _plan(type(value)):
        of = getattr(value, item.name)
        if item.table is not None:
            if of or item.default is _REQUIRED:
                found[item.name] = _table(item.table, of) if of else []
        elif item.default is _REQUIRED or of != item.default:
            found[item.name] = _object(of) if item.nested and of is not None else of
    return found


def _table(kind: type[Any], rows: Sequence[Any]) -> list[Any]:
    columns: dict[str, list[Any]] = {}
    same: dict[str, Any] = {}
    for item in _plan(kind):
        name = item.name
        column: list[Any] = [getattr(row, name) for row in rows]
        if item.default is not _REQUIRED and column.count(item.default) == len(rows):
            continue
        if item.table is not None:
            column = [_table(item.table, of) if of else [] for of in column]
        elif item.nested:
            column = [None if of is None else _object(of) for of in column]
        if column.count(column[0]) == len(rows):
            same[name] = column[0]
        else:
            columns[name] = column
    return [len(rows), columns, same]


def _read_object(kind: type[Any], raw: dict[str, Any]) -> dict[str, Any]:
    return {
        item.name: next(iter(item.read((raw[item.name],))))
        for item in _plan(kind)
        if item.name in raw
    }


ROWS_AT_MOST = 100_000


def _read_table(kind: type[Any], raw: list[Any]) -> tuple[Any, ...]:
    if not raw:
        return ()
    count, columns, same = raw
    if type(count) is not int or not 0 < count <= ROWS_AT_MOST:
        raise TypeError(f"a table of {count!r} rows")
    parts: list[Iterable[Any]] = []
    for item in _plan(kind):
        if item.name in columns:
            column = columns[item.name]
            if len(column) != count:
                raise ValueError(f"{len(column)} of {count} values of {item.name}")
            parts.append(item.read(column))
        elif item.name in same:
            parts.append(repeat(next(iter(item.read((same[item.name],)))), count))
        elif item.make_default is not None:
            parts.append([item.make_default() for _ in range(count)])
        elif item.default is _REQUIRED:
            raise KeyError(item.name)
        else:
            parts.append(repeat(item.default, count))
    return tuple(map(kind, *parts))


def _reader(hint: Any) -> Read:
    optional = isinstance(hint, types.UnionType)
    inner = _without_none(hint)
    origin, arguments = typing.get_origin(inner), typing.get_args(inner)
    if inner is float:
        return _numbers_or_none if optional else _numbers
    if inner is int:
        return _wholes_or_none if optional else _wholes
    if inner is str:
        return _texts_or_none if optional else _texts
    one: Callable[[Any], Any]
    if inner is bool:
        one = _truth
    elif origin is tuple:
        one = _tuple_of(arguments[0]) if arguments[-1] is ... else _row_of(arguments)
    elif origin is dict:
        one = _dict_of(_reader(arguments[1]))
    elif isinstance(inner, type) and issubclass(inner, Enum):
        one = inner
    elif _is_struct(inner):
        one = _struct_of(inner)
    else:
        raise TypeError(f"the recorder cannot write a {inner!r}")
    if optional:
        return lambda column: [None if raw is None else one(raw) for raw in column]
    return lambda column: map(one, column)


def _dict_of(values: Read) -> Callable[[Any], Any]:
    return lambda raw: dict(zip(_texts(list(raw)), values(list(raw.values())), strict=True))


def _struct_of(kind: type[Any]) -> Callable[[Any], Any]:
    return lambda raw: kind(**_read_object(kind, raw))


def _row_of(kinds: Sequence[Any]) -> Callable[[Any], Any]:
    """A tuple of a fixed length, each item of its own kind: `tuple[Stage, float]`."""
    reads = [_reader(kind) for kind in kinds]
    return lambda raw: tuple(
        next(iter(read((item,)))) for read, item in zip(reads, _list(raw), strict=True)
    )


def _tuple_of(inner: Any) -> Callable[[Any], Any]:
    if _is_struct(inner):
        kind = inner
        return lambda raw: _read_table(kind, raw)
    read = _reader(inner)
    return lambda raw: tuple(read(_list(raw)))


_NUMBERS = frozenset((float, int))
_MAYBE_NUMBERS = _NUMBERS | {types.NoneType}


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


def _moment_reader(hint: Any) -> Read:
    if not isinstance(hint, types.UnionType):
        return _moments
    return lambda column: [None if raw is None else _moments((raw,))[0] for raw in column]


def _moments(column: Sequence[Any]) -> Sequence[Any]:
    for raw in _numbers(column):
        moment_s(raw)
    return column


def _wholes(column: Sequence[Any]) -> Sequence[Any]:
    for raw in _numbers(column):
        if not -_MOST <= raw <= _MOST:
            raise ValueError("a whole number out of range")
    return column


def _wholes_or_none(column: Sequence[Any]) -> Sequence[Any]:
    _wholes([raw for raw in column if raw is not None])
    return column


_MOST = (1 << 63) - 1
"""What SQLite, Arrow and a float can hold too."""


def _numbers(column: Sequence[Any]) -> Sequence[Any]:
    if not _NUMBERS.issuperset(map(type, column)):
        raise TypeError("not a number")
    return column


def _numbers_or_none(column: Sequence[Any]) -> Sequence[Any]:
    if not _MAYBE_NUMBERS.issuperset(map(type, column)):
        raise TypeError("not a number")
    return column


def _texts(column: Sequence[Any]) -> Sequence[Any]:
    return column if all(map(str.isprintable, column)) else [_text(raw) for raw in column]


def _texts_or_none(column: Sequence[Any]) -> Sequence[Any]:
    return [None if raw is None else _text(raw) for raw in column]


def _text(raw: Any) -> str:
    if type(raw) is not str:
        raise TypeError("not a text")
    return raw if raw.isprintable() else "\n".join(map(clean, raw.split("\n")))


def _truth(raw: Any) -> bool:
    if type(raw) is not bool:
        raise TypeError("not yes or no")
    return raw


def _list(raw: Any) -> list[Any]:
    if type(raw) is not list:
        raise TypeError("not a list")
    return raw
