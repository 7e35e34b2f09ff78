"""A plot as a separate SVG file. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from training.bench.section import Line, Plot

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 76, 16, 36, 56
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Distinguishable for the colour-blind (Okabe and Ito: Color Universal Design, 2008)."""
DASHES = ("", "6 3", "2 3", "8 3 2 3")


class Axis:
    def __init__(self, values: Sequence[float], *, log: bool) -> None:
        self._log = log and min(values) > 0
        if self._log:
            self.low = 10.0 ** math.floor(math.log10(min(values)))
            self.high = 10.0 ** math.ceil(math.log10(max(values)))
            self.high = max(self.high, self.low * 10)
            decades = round(math.log10(self.high / self.low))
            every = -(-decades // 8)
            self.ticks = [self.low * 10.0**at for at in range(0, decades + 1, every)]
        else:
            low, high = min(0.0, *values), max(values)
            step = nice_step((high - low) or 1.0)
            first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
            last = max(last, first + 1)
            self.ticks = [at * step for at in range(first, last + 1)]
            self.low, self.high = self.ticks[0], self.ticks[-1]

    def part(self, value: float) -> float:
        """0 at the start of the axis, 1 at its end."""
        if self._log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def nice_step(span: float, parts: int = 5) -> float:
    """1, 2 or 5 times a power of ten, for about `count` ticks."""
    power = 10.0 ** math.floor(math.log10(span / parts))
    return next((f * power for f in (1.0, 2.0, 5.0) if f * power * parts >= span), 10.0 * power)


def svg(plot: Plot) -> str:
    """Points that are not finite are omitted. Raises ValueError if none remains."""
    lines = [Line(line.label, finite(line.points)) for line in plot.lines]
    points = [point for line in lines for point in line.points]
    if not points:
        raise ValueError(f"{plot.title}: there is nothing to plot")
    x_axis = Axis([x for x, _ in points], log=plot.log_x)
    y_axis = Axis([y for _, y in points], log=plot.log_y)

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + x_axis.part(x) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - y_axis.part(y) * (HEIGHT - TOP - BOTTOM),
        )

    parts = [_text(LEFT, 20, plot.title, weight="bold")]
    for tick in x_axis.ticks:
        x, y = at(tick, y_axis.low)
        parts.append(f'<path d="M{x:.1f} {y:.1f}v5" stroke="#555"/>')
        parts.append(_text(x, y + 18, short(tick), anchor="middle"))
    for tick in y_axis.ticks:
        x, y = at(x_axis.low, tick)
        parts.append(f'<path d="M{x:.1f} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(_text(x - 6, y + 4, short(tick), anchor="end"))
    parts.append(_text((LEFT + WIDTH) / 2, HEIGHT - 12, plot.x_label, anchor="middle"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = f' transform="rotate(-90 16 {middle})"'
    parts.append(_text(16, middle, plot.y_label, anchor="middle", more=turned))
    for index, line in enumerate(lines):
        parts += _line(index, line.label, [at(*point) for point in line.points])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
        f' height="{HEIGHT}" role="img" font-family="sans-serif" font-size="12">'
        f"<title>{escape(plot.title)}</title>"
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>' + "".join(parts) + "</svg>\n"
    )


def finite(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    return tuple(sorted(point for point in points if all(map(math.isfinite, point))))


def short(value: float) -> str:
    """The label of a tick: `0.5`, `20k`, `3M`."""
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:g}{unit}"
    return f"{value:.3g}"


def _line(index: int, label: str, points: Sequence[tuple[float, float]]) -> list[str]:
    colour, dash = COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)]
    path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    stroke = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
    drawn = [f'<path d="{path}" {stroke}/>'] if len(points) > 1 else []
    drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    y = TOP + 14 + 16 * index
    drawn.append(f'<path d="M{LEFT + 8} {y - 4}h22" {stroke}/>')
    return [*drawn, _text(LEFT + 36, y, label)]


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", more: str = ""
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}"'
        f' fill="#222"{more}>{escape(text)}</text>'
    )
