"""Decode JSON of unknown origin within limits.

A small document can be expensive: three bytes of `[],` become 64 bytes of memory, 200,000 brackets
exhaust the stack of code that walks over the result, and a number of 400 digits is not a float. A
document over a limit is rejected before it is decoded.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

MAX_BYTES = 32 << 20
"""250 pods with their managed fields are 8 MB; 10,000 tasks of a timeline are 6 MB."""
MAX_DEPTH = 64
"""A pod's manifest is 16 deep."""
MAX_VALUES = 2_000_000
INT_DIGITS = 63
"""Longer whole numbers become floats, possibly infinite: no field of cockpit stores them."""

_STRUCTURE = b'[]{},"'
_OTHER = bytes(set(range(256)) - set(_STRUCTURE))
_DIGITS = bytes(0x30 if 0x30 <= at <= 0x39 else 0 for at in range(256))
_STRINGS = re.compile(rb'"[^"]*"')


class LimitError(ValueError):
    """The document is larger or deeper than expected. One line, without its content."""


def loads(
    data: str | bytes | bytearray,
    *,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
    max_values: int = MAX_VALUES,
) -> Any:
    """Return the decoded document. As `json.loads`, it accepts NaN and the infinities.

    Raises ValueError for invalid JSON, LimitError (a ValueError) for a document over a limit, and
    TypeError for what is neither text nor bytes.
    """
    if not isinstance(data, str | bytes | bytearray):
        raise TypeError(f"a {type(data).__name__} is not JSON")
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
    if len(raw) > max_bytes:
        raise LimitError(f"it has more than {max_bytes / (1 << 20):g} MiB")
    check(raw, max_depth=max_depth, max_values=max_values)
    text = data if isinstance(data, str) else raw.decode("utf-8-sig", "surrogatepass")
    has_long = b"0" * (INT_DIGITS + 1) in raw.translate(_DIGITS)
    if has_long:
        return json.loads(text, parse_int=_whole)
    try:
        return msgspec.json.decode(text)
    except ValueError:
        return json.loads(text)  # NaN, an infinity, half of a surrogate pair; or not JSON


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= INT_DIGITS else float(digits)


def check(raw: bytes, *, max_depth: int = MAX_DEPTH, max_values: int = MAX_VALUES) -> None:
    """Reject what `loads` rejects, for a document that another library decodes.

    Counts values and depth in passes over bytes, at a fraction of the cost of decoding. Without
    strings and scalars a document consists of brackets only, and each pass that removes the empty
    pairs removes the innermost level. Raises LimitError, or ValueError for brackets that do not
    match.
    """
    opened = raw.count(b"[") + raw.count(b"{")
    if opened <= max_depth and opened + raw.count(b",") <= max_values:
        return
    outside = raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw
    # Most strings are two quotes by now, or two adjacent ones: in both cases a pair is removed.
    left = _STRINGS.sub(b"", outside.translate(None, _OTHER).replace(b'""', b""))
    if left.count(b",") + left.count(b"[") + left.count(b"{") > max_values:
        raise LimitError(f"it has more than {max_values:,} values")
    left = left.translate(None, b",")
    for _ in range(max_depth):
        if not left:
            return
        left = _without_pairs(left)
    if left:
        if _without_pairs(left) == left:
            raise ValueError("its brackets do not match")
        raise LimitError(f"it is nested more than {max_depth} levels deep")


def _without_pairs(brackets: bytes) -> bytes:
    return brackets.replace(b"[]", b"\x00").replace(b"{}", b"").replace(b"\x00", b"")
