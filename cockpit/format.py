"""Numbers as short text, the same on the screen, in the CLI and in reports.

A value that is not known (None) is an en dash, never a zero.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

DASH = "–"
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SI = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}


def age(seconds: float | None) -> str:
    """How long ago, to one unit: `3 s`, `12 m`, `5 h`, `2 d`."""
    if (text := odd(seconds)) is not None or seconds is None:
        return text or DASH
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{int(seconds)} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} m"
    if seconds < 86_400:
        return f"{int(seconds // 3600)} h"
    return f"{int(seconds // 86_400)} d"


def moment(at_s: float) -> str:
    """A Unix time where cockpit runs: `2026-11-25 03:12:04`."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))


def duration(seconds: float | None) -> str:
    """How long it took: `35 ms`, `18.5 s`, `4 m 05 s`, `1 h 12 m`, `2 d 3 h`."""
    if (text := odd(seconds)) is not None or seconds is None:
        return text or DASH
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    if 0 < seconds < 0.9995:
        if seconds >= 1e-3:
            return f"{sign}{_plain(seconds * 1e3, 3)} ms"
        micro = seconds * 1e6
        return f"{sign}{_plain(micro, 3)} µs" if micro >= 1 else f"{sign}{micro * 1e3:.3g} ns"
    if seconds < 59.95:
        return f"{sign}{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{sign}{whole // 60} m {whole % 60:02d} s"
    minutes = whole // 60
    if minutes < 24 * 60:
        return f"{sign}{minutes // 60} h {minutes % 60:02d} m"
    hours = minutes // 60
    return f"{sign}{hours // 24} d {hours % 24} h"


def in_seconds(seconds: float, decimals: int | None = None) -> str:
    """A number of seconds, also above 60: `600 s`, `18.5 s`. For limits and what they limit.

    Without `decimals`, a setting as it was given: `0.5 s`.
    """
    return _in(seconds, 1, "s", decimals)


def in_minutes(seconds: float, decimals: int | None = None) -> str:
    """A number of minutes, also above 60: `90 min`."""
    return _in(seconds, 60, "min", decimals)


def in_hours(seconds: float, decimals: int | None = None) -> str:
    """A number of hours, also above 24: `37.5 h`."""
    return _in(seconds, 3600, "h", decimals)


def _in(seconds: float, size: int, unit: str, decimals: int | None) -> str:
    shown = f"{seconds / size:g}" if decimals is None else f"{seconds / size:z,.{decimals}f}"
    return f"{shown} {unit}"


def bytes_text(count: float | None) -> str:
    """`512 B`, `1.2 GiB`."""
    if (text := odd(count)) is not None or count is None:
        return text or DASH
    size = float(count)
    for unit in _BINARY:
        if abs(size) < 999.5 or unit == _BINARY[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" or abs(size) >= 99.95 else f"{size:.1f} {unit}"


def si(value: float | None, digits: int = 3) -> str:
    """To that many significant digits with an SI prefix: 1234.5 is `1.23k`, 0.0012 is `1.2m`."""
    if (text := odd(value)) is not None or value is None:
        return text or DASH
    if value == 0:
        return "0"
    value = float(f"{value:.{digits}g}")
    power = min(max(math.floor(math.log10(abs(value)) / 3) * 3, min(_SI)), max(_SI))
    return f"{_plain(value / 10.0**power, digits)}{_SI[power]}"


def number(value: float | None, digits: int = 4) -> str:
    """To that many significant digits, plain between 0.0001 and 10 million: a loss, a rate."""
    if (text := odd(value)) is not None or value is None:
        return text or DASH
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e7:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        return f"{value:.{decimals}f}"
    return f"{value:.{digits - 1}e}"


def reported(value: float | None) -> str:
    """A number of unknown meaning, reported by a script: `150` for 150.0, else as `number`."""
    if value is not None and value.is_integer() and abs(value) < 1e7:
        return f"{value:.0f}"
    return number(value)


def rate(value: float | None, unit: str = "/s") -> str:
    """`1.23k/s`."""
    return DASH if value is None else f"{si(value)}{unit}"


def percent(value: float | None) -> str:
    """Of a number that is already in percent: `62 %`."""
    if (text := odd(value)) is not None or value is None:
        return text or DASH
    return f"{value:.0f} %"


def count(value: int | None) -> str:
    """An integer with a thousands separator: `20,000`."""
    return DASH if value is None else f"{value:,}"


_VOWELS = frozenset("aeiou")


def plural(number: float, noun: str) -> str:
    """`1 step`, `20,000 steps`, `2 processes`, `3 tries`: of a noun whose plural ends in s."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{shown} {inflected(number, noun)}"


def inflected(number: float, noun: str) -> str:
    """`step`, `steps`: the noun alone, before a list of what is counted."""
    if number == 1:
        return noun
    if noun.endswith("y") and noun[-2:-1] not in _VOWELS:
        return f"{noun[:-1]}ies"
    return f"{noun}{'es' if noun.endswith('s') else 's'}"


def verb(number: float, form: str) -> str:
    """`makes` for 1 and `make` for others, of the form for many."""
    return {"have": "has", "are": "is", "go": "goes"}.get(form, f"{form}s") if number == 1 else form


def ranks(numbers: Iterable[int], most: int = 6) -> str:
    """`rank 3`, `ranks 1, 2, 5`, `ranks 1, 2, … (40)`: in order, the first `most` of them."""
    ordered = sorted(numbers)
    text = ", ".join(str(number) for number in ordered[:most])
    if len(ordered) > most:
        return f"ranks {text}, … ({len(ordered):,})"
    return f"{inflected(len(ordered), 'rank')} {text}"


def trimmed(value: float, digits: int) -> str:
    """To that many significant digits, without zeros at the end: 2.5 and not 2.500."""
    return "0" if value == 0 else _plain(value, digits)


def _plain(value: float, digits: int) -> str:
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def odd(value: float | None) -> str | None:
    """Text for what is not a number that can be measured."""
    if value is None:
        return DASH
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return None
