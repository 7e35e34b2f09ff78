"""Fields of a raw object, of any shape: the empty value for what is missing or odd."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from cockpit.model.error import UsageError
from cockpit.model.text import one_line

T = TypeVar("T")

_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)")
_SUFFIXES = {
    **{"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3},
    **{"M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18},
    **{"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60},
}


UNUSABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""Errors when parsing an unexpected object."""


def usable(parse: Callable[[Any], T], raw: Iterable[Any]) -> list[T]:
    """The results of `parse` for each object; a malformed one is skipped."""
    found = []
    for each in raw:
        with suppress(*UNUSABLE):
            found.append(parse(each))
    return found


def mapping(raw: Any, key: str) -> dict[str, Any]:
    value = raw.get(key) if isinstance(raw, Mapping) else None
    return value if isinstance(value, dict) else {}


def items(raw: Any, key: str, kind: type = dict) -> list[Any]:
    """The list's members of that type."""
    value = raw.get(key) if isinstance(raw, Mapping) else None
    return [each for each in value if isinstance(each, kind)] if isinstance(value, list) else []


def text(raw: Mapping[str, Any], key: str, limit: int = 300) -> str:
    """One line without control characters."""
    value = raw.get(key)
    if isinstance(value, str):
        # Every name and state of a healthy cluster is so: no need to look closer.
        if value.isascii() and value.isprintable() and len(value) <= limit:
            return value
        return one_line(value, limit)
    return "" if value is None else one_line(str(value), limit)


def whole(raw: Mapping[str, Any], key: str, default: int = 0) -> int:
    value = raw.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def boolean(raw: Mapping[str, Any], key: str) -> bool:
    return raw.get(key) is True


def number(value: Any, default: float) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return default


def quantity(value: Any) -> float:
    """A Kubernetes quantity (`100m`, `3Gi`, `2`) as a number; 0 if invalid."""
    if isinstance(value, int | float):
        return float(value)
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2] not in _SUFFIXES:
        return 0.0
    return number(match[1], 0.0) * _SUFFIXES[match[2]]


def seconds(stamp: Any) -> float:
    """A Kubernetes time as Unix seconds; 0 if missing."""
    if not isinstance(stamp, str) or not stamp:
        return 0.0
    try:
        return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):  # a year that this machine's calendar lacks
        return 0.0


def is_ready(raw: Any) -> bool:
    """Whether the condition Ready of a pod or a node is true."""
    return any(
        text(each, "type") == "Ready" and text(each, "status") == "True"
        for each in items(mapping(raw, "status"), "conditions")
    )


_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")


def is_label(name: str) -> bool:
    """Whether a Service or a namespace can have the name (a label of RFC 1123)."""
    return _LABEL.fullmatch(name) is not None


def checked(kind: str, name: str) -> str:
    """The name. UsageError for an invalid object name."""
    if _NAME.fullmatch(name) and ".." not in name:
        return name
    raise UsageError(
        f"There is no {kind} {one_line(name)!r}.",
        "Names have lower-case letters, digits, dashes and dots.",
    )
