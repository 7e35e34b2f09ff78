"""Values as text, each by its kind. Not known (None) is an en dash, never a zero."""

from __future__ import annotations

import math
import time

from cockpit.model.secret import MASKED, masked
from cockpit.model.text import one_line
from cockpit.report.document import Kind, Value

DASH = "–"
LONGEST = 300
"""Characters of one text."""
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SI = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}


def shown(value: Value, kind: Kind, begin_s: float = 0.0) -> str:
    """The value in one line of clean text, without secrets. `begin_s`: what moments count from."""
    if value is None or value == "":
        return DASH
    if isinstance(value, str):
        # An address works without the password that was in it.
        return text(value).replace(f"://{MASKED}@", "://") if kind is Kind.LINK else text(value)
    if (odd := _odd(value)) is not None:
        return odd
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


def duration(seconds: float) -> str:
    """`35 ms`, `18.5 s`, `4 m 05 s`, `1 h 12 m`, `2 d 3 h`."""
    if (odd := _odd(seconds)) is not None:
        return odd
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    if 0 < seconds < 0.9995:
        if seconds >= 1e-3:
            return f"{sign}{_significant(seconds * 1e3, 3)} ms"
        return f"{sign}{_significant(seconds * 1e6, 3)} µs"
    if seconds < 59.95:
        return f"{sign}{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{sign}{whole // 60} m {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{sign}{minutes // 60} h {minutes % 60:02d} m"
    hours = round(seconds / 3600)
    return f"{sign}{hours // 24} d {hours % 24} h"


def bytes_text(count: float) -> str:
    """`512 B`, `1.2 GiB`."""
    size = float(count)
    for unit in _BINARY:
        if abs(size) < 999.5 or unit == _BINARY[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" or abs(size) >= 99.95 else f"{size:.1f} {unit}"


def si(value: float, digits: int = 3) -> str:
    """To that many significant digits with an SI prefix: 1234.5 is `1.23k`."""
    if value == 0:
        return "0"
    value = float(f"{value:.{digits}g}")
    power = min(max(math.floor(math.log10(abs(value)) / 3) * 3, min(_SI)), max(_SI))
    return f"{_significant(value / 10.0**power, digits)}{_SI[power]}"


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
        return _significant(value, digits)
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{power}"


def _significant(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    plain = f"{value:.{decimals}f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _odd(value: float) -> str | None:
    """Text for what is not a number that can be measured."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return None


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
