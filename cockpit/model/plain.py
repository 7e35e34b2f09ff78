"""Frozen dataclasses from plain JSON values, by their annotations; `asdict` is the way back."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def from_plain(kind: type[T], raw: Any) -> T:
    """Return the `kind` that `asdict` made `raw` of; what `raw` lacks gets its default.

    Raises KeyError, TypeError or ValueError for anything else.
    """
    declared: Any = kind
    given = {name: read(raw[name]) for name, read in _readers(declared) if name in raw}
    return kind(**given)


@cache
def _readers(kind: type[Any]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    hints = typing.get_type_hints(kind)
    return tuple((item.name, _reader(hints[item.name])) for item in dataclasses.fields(kind))


def _reader(hint: Any) -> Callable[[Any], Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        kinds = [kind for kind in arguments if kind is not types.NoneType]
        read = _reader(kinds[0]) if len(kinds) == 1 else _instance_of(tuple(kinds))
        if types.NoneType in arguments:
            return lambda raw: None if raw is None else read(raw)
        return read
    if origin is tuple:
        item = _reader(arguments[0])
        return lambda raw: tuple(map(item, _instance_of((list, tuple))(raw)))
    if origin is typing.Literal:
        return lambda raw: arguments[arguments.index(raw)]
    if dataclasses.is_dataclass(hint):
        return lambda raw: from_plain(typing.cast("type[Any]", hint), raw)
    if hint is float:
        number = _instance_of((int, float))
        return lambda raw: float(number(raw))
    return hint if issubclass(hint, Enum) else _instance_of((hint,))


def _instance_of(kinds: tuple[type[Any], ...]) -> Callable[[Any], Any]:
    def read(raw: Any) -> Any:
        if type(raw) not in kinds:
            raise TypeError(f"{raw!r} is not of type {' or '.join(k.__name__ for k in kinds)}")
        return raw

    return read
