"""Results as JSON and back: nested frozen dataclasses of numbers, strings and tuples."""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class Unreadable(ValueError):
    """A file of results has another format: the difference, as one line."""


def decode(kind: type[T], value: Any) -> T:
    """Restore what `dataclasses.asdict` made of a `kind`, after JSON. Raises Unreadable."""
    decoded: T = _decode(kind, value, kind.__name__)
    return decoded


def _decode(kind: Any, value: Any, where: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        (kind,) = [item for item in inner if item is not type(None)]
        return _decode(kind, value, where)
    if origin is tuple:
        _expect(list, value, where)
        if inner[-1] is Ellipsis:
            return tuple(_decode(inner[0], item, where) for item in value)
        if len(inner) != len(value):
            raise Unreadable(f"{where} has {len(value)} items, not {len(inner)}")
        return tuple(_decode(*pair, where) for pair in zip(inner, value, strict=True))
    if is_dataclass(kind):
        _expect(dict, value, where)
        names = [field.name for field in fields(kind)]
        if set(names) != set(value):
            odd = ", ".join(sorted(set(names) ^ set(value)))
            raise Unreadable(f"{where} does not have the fields of this version: {odd}")
        hints = get_type_hints(kind)
        return kind(**{n: _decode(hints[n], value[n], f"{where}.{n}") for n in names})  # type: ignore[operator]
    if kind is float and type(value) is int:
        return float(value)
    _expect(kind, value, where)
    return value


def _expect(kind: type, value: Any, where: str) -> None:
    if type(value) is not kind:
        raise Unreadable(f"{where} is {value!r}, and should be of type {kind.__name__}")
