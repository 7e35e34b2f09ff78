"""The few elements of SVG that the charts are made of, every text escaped, every number short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from cockpit.report import values

CHARACTER_PX = 6.0
"""About the width of a letter at that size, to see what fits."""


def number(value: float) -> str:
    """Rounded to a tenth of a pixel."""
    text = f"{value:.1f}"
    return text.removesuffix(".0")


def text(
    x: float, y: float, content: str, *, anchor: str = "start", css: str = "", limit: int = 120
) -> str:
    """A text; `css` is a class. It is cut to `limit` characters."""
    of_class = f' class="{css}"' if css else ""
    to = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{number(x)}" y="{number(y)}"{to}{of_class}>{text_of(content, limit)}</text>'


def text_of(content: str, limit: int = 300) -> str:
    return escape(values.text(content, limit), quote=True)


def path(points: Iterable[Sequence[Sequence[float]]], css: str) -> str:
    """Several open lines as one element; each a sequence of (x, y)."""
    drawn = "".join(
        "M" + " ".join(f"{number(x)},{number(y)}" for x, y in line) for line in points if line
    )
    return f'<path class="{css}" d="{drawn}"/>' if drawn else ""


def areas(
    parts: Iterable[tuple[Sequence[Sequence[float]], Sequence[Sequence[float]]]], css: str
) -> str:
    """Return the area between each two lines of (x, y), as one element."""
    around = ([*tops, *reversed(bottoms)] for tops, bottoms in parts)
    drawn = "".join(
        "M" + " ".join(f"{number(x)},{number(y)}" for x, y in shape) + "Z" for shape in around
    )
    return f'<path class="{css}" d="{drawn}"/>' if drawn else ""


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    return (
        f'<line class="{css}" x1="{number(x1)}" y1="{number(y1)}"'
        f' x2="{number(x2)}" y2="{number(y2)}"/>'
    )


def box(x: float, y: float, width: float, height: float, css: str, title: str = "") -> str:
    """A rectangle, with a title that shows under the pointer and is read aloud."""
    inside = f"<title>{text_of(title)}</title>" if title else ""
    place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    return (
        f'<rect class="{css}" {place}>{inside}</rect>'
        if inside
        else (f'<rect class="{css}" {place}/>')
    )


def group(css: str, title: str, inside: str) -> str:
    return f'<g class="{css}"><title>{text_of(title)}</title>{inside}</g>'


def picture(
    width: float, height: float, title: str, description: str, inside: Sequence[str]
) -> str:
    """Return the complete SVG, with its alternative text."""
    return (
        f'<svg viewBox="0 0 {number(width)} {number(height)}" role="img"'
        f' aria-label="{text_of(title)}" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{text_of(title)}</title><desc>{text_of(description, 600)}</desc>"
        + "".join(part for part in inside if part)
        + "</svg>"
    )
