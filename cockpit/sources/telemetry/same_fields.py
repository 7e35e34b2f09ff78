"""Copy the fields of a telemetry record that are called the same in the model."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct

from cockpit.model.text import one_line

T = TypeVar("T", bound=Struct)


def copied(kind: type[T], record: object, /, **others: Any) -> T:
    """Each text becomes one line. `others`: fields that are called otherwise, or need more."""
    same = {
        name: _plain(getattr(record, name))
        for name in kind.__struct_fields__
        if name not in others and hasattr(record, name)
    }
    return kind(**same, **others)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, dict):
        return {one_line(name): _plain(of) for name, of in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value
