"""The labels of a chart's axes. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from enum import StrEnum

from cockpit import format
from cockpit.plot.scale import log_range, nice_step, time_step, y_range
from training.telemetry.metric_table import Unit


class Axis(StrEnum):
    """The unit of a chart's horizontal axis."""

    AGO = "time ago"
    CLOCK = "time of day"
    SINCE = "time since the start"
    STEP = "step"


_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SI = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
_LABEL_CELLS = 12
"""Room for one label of the time axis, with what keeps it from the next."""


def value_text(value: float, unit: Unit) -> str:
    """One value with its unit, for a legend."""
    match unit:
        case "B":
            return format.bytes_text(value)
        case "s":
            return format.duration(value)
        case "%":
            return format.percent(value)
        case "/s":
            return format.rate(value)
        case "W":
            return f"{format.si(value)} W"
        case "°C":
            return f"{format.number(value, 3)} °C"
        case _:
            return format.number(value)


def y_axis(
    low: float, high: float, rows: int, unit: Unit
) -> tuple[float, float, list[tuple[float, str]]]:
    """The range to draw, and the labels with their places."""
    scale, suffix = _scale(max(abs(low), abs(high)), unit)
    bottom, top, ticks = y_range(low / scale, high / scale, rows)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else nice_step(top - bottom, 2)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    # Beyond the largest prefix only a power of ten is short enough.
    form = f".{min(decimals, 9)}f" if max(map(abs, ticks), default=0) < 1e6 else ".1e"
    labels = [
        (tick * scale, f"{tick + 0.0:{form}}{suffix}" if abs(tick) > step * 1e-6 else "0")
        for tick in ticks
    ]
    return bottom * scale, top * scale, labels


def y_axis_in_powers(
    low: float, high: float, rows: int, unit: Unit
) -> tuple[float, float, list[tuple[float, str]]]:
    """As `y_axis`, logarithmic: ends and places are powers of ten. Both must be above 0."""
    bottom, top, ticks = log_range(low, high, rows)
    return bottom, top, [(math.log10(tick), _tick_text(tick, unit)) for tick in ticks]


def _tick_text(value: float, unit: Unit) -> str:
    scale, suffix = _scale(value * 1.0001, unit)
    number = value / scale
    return f"{number:.6g}{suffix}" if 1e-3 <= number < 1e6 else f"{number:.0e}{suffix}"


def _scale(most: float, unit: Unit) -> tuple[float, str]:
    if unit == "B":
        power = 0
        while most >= 1000 * 1024.0**power and power < len(_BINARY) - 1:
            power += 1
        return 1024.0**power, _BINARY[power]
    if unit in ("%", "°C"):
        return 1.0, "%" if unit == "%" else "°"
    if unit == "s" and most >= 1:
        return (3600.0, "h") if most >= 7200 else (60.0, "m") if most >= 300 else (1.0, "s")
    if unit in ("", "/s") and (most == 0 or 1e-3 <= most < 1e4):
        return 1.0, ""
    exponent = 0 if most == 0 else math.floor(math.log10(most) / 3) * 3
    exponent = min(max(exponent, min(_SI)), max(_SI))
    return 10.0**exponent, _SI[exponent] + ("" if unit == "/s" else unit)


def extent(
    starts: Sequence[float], now_s: float, window_s: float | None, pixels: int
) -> tuple[float, float]:
    """The time range of the chart.

    The end moves by whole pixels only: in between, the drawn part does not change, and a point does
    not alternate between two columns.
    """
    if window_s is not None and window_s > 0:
        a_pixel_s = window_s / max(1, pixels)
        end_s = (math.floor(now_s / a_pixel_s) + 1) * a_pixel_s
        return end_s - window_s, end_s
    start_s = min(starts, default=now_s - 1)
    span_s = max(now_s - start_s, 1.0)
    quantum_s = nice_step(span_s, 50)
    return start_s, start_s + (math.floor(span_s / quantum_s) + 1) * quantum_s


def labels_of(
    axis: Axis, start: float, end: float, now: float, origin: float, cells: int
) -> list[tuple[int, str]]:
    """(cell, label) from left to right.

    `now`: what `AGO` counts back from; `origin`: what `SINCE` counts from.
    """
    match axis:
        case Axis.STEP:
            return _from_origin(start, end, 0.0, cells, _step_text)
        case Axis.SINCE:
            return _from_origin(start, end, origin, cells, _since_text)
        case _:
            return time_labels(start, end, now, cells, clock=axis is Axis.CLOCK)


def place_text(axis: Axis, place: float, now: float, origin: float) -> str:
    """The label of one place on the axis, for a cursor."""
    match axis:
        case Axis.STEP:
            return f"step {round(place):,}"
        case Axis.SINCE:
            return f"{format.duration(place - origin)} after the start"
        case Axis.CLOCK:
            return time.strftime("%H:%M:%S", time.localtime(place))
        case _:
            return f"{format.duration(max(0.0, now - place))} ago"


def _from_origin(
    start: float, end: float, origin: float, cells: int, text: Callable[[float, float], str]
) -> list[tuple[int, str]]:
    span = end - start
    if cells < 4 or span <= 0:
        return []
    parts = max(1, cells // _LABEL_CELLS)
    step = max(1.0, nice_step(span, parts)) if text is _step_text else time_step(span, parts)
    first = math.ceil((start - origin) / step - 1e-9)
    found = []
    for number in range(first, first + 2 * parts + 2):
        place = origin + number * step
        if place <= end:
            cell = int((place - start) / span * cells)
            found.append((min(cell, cells - 1), text(number * step, step)))
    return found


def _step_text(step: float, apart: float) -> str:
    whole = round(step)
    if abs(whole) < 10_000:
        return str(whole)
    for size, suffix in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if abs(whole) >= size:
            decimals = max(0, math.ceil(-math.log10(apart / size) - 1e-9))
            return f"{whole / size:.{decimals}f}{suffix}"
    return str(whole)


def _since_text(seconds: float, apart: float) -> str:
    """`1:05` of hours and minutes, or with seconds where labels are nearer than a minute."""
    sign, whole = ("-", -round(seconds)) if seconds < 0 else ("", round(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if apart >= 86_400:
        return f"{sign}{whole // 86_400}d"
    if hours == 0 and apart < 3600:
        return f"{sign}{minutes}:{rest:02d}" if apart < 60 else f"{sign}{minutes}m"
    return f"{sign}{hours}h{minutes:02d}" + (f":{rest:02d}" if apart < 60 else "")


def time_labels(
    start_s: float, end_s: float, now_s: float, cells: int, *, clock: bool
) -> list[tuple[int, str]]:
    """(cell, label) from left to right; the cell is the one of the label's instant."""
    span_s = end_s - start_s
    if cells < 4 or span_s <= 0:
        return []
    step = time_step(span_s, max(1, cells // _LABEL_CELLS))
    found = []
    if clock:
        offset = time.localtime(end_s).tm_gmtoff
        form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86_400 else "%d %b"
        at_s = math.ceil((start_s + offset) / step) * step - offset
        while at_s <= end_s:
            label = time.strftime(form, time.localtime(at_s))
            found.append((int((at_s - start_s) / span_s * cells), label))
            at_s += step
        return found
    for number in range(int(span_s / step) + 1):
        cell = int((now_s - number * step - start_s) / span_s * cells)
        if cell >= 0:
            found.append((min(cell, cells - 1), f"-{_short(number * step)}" if number else "now"))
    return found[::-1]


def _short(seconds: float) -> str:
    for unit_s, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.3g}{unit}"
    return f"{seconds:.3g}s"
