"""Format values by their kind. Unknown (None) is an en dash, never zero."""

from __future__ import annotations

import math
import time

from cockpit.format import DASH, bytes_text, duration, odd, si, trimmed
from cockpit.model.secret import MASKED, masked
from cockpit.model.text import one_line
from cockpit.report.document import Kind, Tone, Value

LONGEST = 300
"""Characters of one text."""
TONES = {Tone.GOOD: "✓", Tone.MIXED: "!", Tone.BAD: "✗", Tone.GOING: "…"}


def title_of(name: str) -> str:
    """The title of a column or fact without one: its name without the unit."""
    for unit in ("_per_s", "_percent", "_bytes", "_s"):
        name = name.removesuffix(unit)
    return name.replace("_", " ")


def shown(value: Value, kind: Kind, begin_s: float = 0.0) -> str:
    """The value in one line of clean text, without secrets. `begin_s`: what moments count from."""
    if value is None or value == "":
        return DASH
    if isinstance(value, str):
        # An address works without the password that was in it.
        return text(value).replace(f"://{MASKED}@", "://") if kind is Kind.LINK else text(value)
    if (unmeasured := odd(value)) is not None:
        return unmeasured
    match kind:
        case Kind.COUNT:
            return f"{round(value):,}"
        case Kind.SECONDS:
            return duration(value)
        case Kind.PERCENT:
            return f"{value:.1f} %" if abs(value) < 99.95 else f"{value:.0f} %"
        case Kind.BYTES:
            return bytes_text(value)
        case Kind.RATE:
            return f"{si(value)}/s"
        case Kind.WATTS:
            return _spaced(si(value), "W")
        case Kind.CELSIUS:
            return f"{value:.0f} °C"
        case Kind.MOMENT:
            return f"{clock(value)} ({since(value - begin_s)})"
        case _:
            return number(value)


def text(value: str, limit: int = LONGEST) -> str:
    """One clean line that any writer can encode. Characters that XML forbids are left out."""
    line = one_line(masked(value), limit)
    if line.isascii():
        return line
    return "".join("\ufffd" if _is_forbidden(letter) else letter for letter in line)


def date(at_s: float | None) -> str:
    """`2025-11-21 08:00:16 UTC`."""
    return _utc(at_s, "%Y-%m-%d %H:%M:%S UTC")


def clock(at_s: float | None) -> str:
    """`08:00:16`, in UTC."""
    return _utc(at_s, "%H:%M:%S")


def instant(at_s: float | None) -> str:
    """`2025-11-21T08:00:16Z`, for programs."""
    return _utc(at_s, "%Y-%m-%dT%H:%M:%SZ")


def since(seconds: float) -> str:
    """`+1 m 20 s`, `-3.0 s`."""
    return duration(seconds) if seconds < 0 else f"+{duration(seconds)}"


def _spaced(digits: str, unit: str) -> str:
    """`612 kW` from `612k`."""
    prefix = digits[-1] if digits[-1].isalpha() or digits[-1] == "µ" else ""
    return f"{digits.removesuffix(prefix) if prefix else digits} {prefix}{unit}"


def number(value: float, digits: int = 4) -> str:
    """To that many significant digits, plain between 0.0001 and 10 million."""
    if value == 0:
        return "0"
    if isinstance(value, int) and abs(value) < 10**7:
        return f"{value:,}"
    if 1e-4 <= abs(value) < 1e7:
        return trimmed(value, digits)
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{power}"


def _utc(at_s: float | None, form: str) -> str:
    if at_s is None or not math.isfinite(at_s):
        return DASH
    try:
        return time.strftime(form, time.gmtime(at_s))
    except (OverflowError, ValueError, OSError):
        return DASH  # a clock so wrong that it has no date


def _is_forbidden(letter: str) -> bool:
    """Lone surrogates, which UTF-8 has no bytes for, and what XML 1.0 leaves out of Char."""
    code = ord(letter)
    return 0xD800 <= code <= 0xDFFF or code & 0xFFFE == 0xFFFE
