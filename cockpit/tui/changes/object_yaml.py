"""Format an object of the store as YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from msgspec import to_builtins

from cockpit.format import moment
from cockpit.model.text import clean

_PLAIN = re.compile(r"[A-Za-z_./][\w./@-]*( [\w./@:-]+)*")
FIRST_TIME_S = 1e9
"""Larger numbers of seconds are Unix times and not durations."""
_RESERVED = {"null", "true", "false", "yes", "no", "on", "off", "nan", "inf"}


def yaml(value: Any) -> str:
    """Structs, mappings, sequences and scalars; no series and no live objects."""
    return "\n".join(_lines(to_builtins(value), 0))


def _lines(value: Any, depth: int) -> Iterator[str]:
    pad = "  " * depth
    if isinstance(value, dict) and value:
        for name, item in value.items():
            if isinstance(item, (dict, list, tuple)) and item:
                yield f"{pad}{_scalar(name)}:"
                yield from _lines(item, depth + 1)
            else:
                yield f"{pad}{_scalar(name)}: {_scalar(_shown(name, item))}"
    elif isinstance(value, (list, tuple)) and value:
        for item in value:
            first, *rest = _lines(item, depth + 1)
            yield f"{pad}- {first.strip()}"
            yield from rest
    else:
        yield f"{pad}{_scalar(value)}"


def _shown(name: Any, value: Any) -> Any:
    """A readable time: `created_s: 1763712000.0` is not."""
    if str(name).endswith("_s") and isinstance(value, float) and value > FIRST_TIME_S:
        return moment(value)
    return value


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, (list, tuple)):
        return "[]"
    text = "\n".join(clean(line) for line in str(value).split("\n"))
    if _PLAIN.fullmatch(text) and text.lower() not in _RESERVED and ": " not in text:
        return text
    return json.dumps(text, ensure_ascii=False)
