"""Filters of all displayed text: no control characters, and ASCII where a terminal needs it.

Sources already clean their text. PRINTABLE covers what they miss, in every widget, title and
message. ASCII is for terminals whose font or encoding has no other characters.
"""

from __future__ import annotations

from functools import lru_cache

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from cockpit.model.text import CONTROLS

_LIKE = {
    "─━═▔▁▂▃▄": "-",
    "│┃║┊┆▌▐▎▊▏▕┤├": "|",
    "┌┐└┘╭╮╰╯┬┴┼": "+",
    "▅▆▇█■▀": "#",
    "●◌•": "*",
    "·": ".",
    "…": "~",
    "–—−": "-",
    "✓★": "+",
    "✗": "x",
    "⚠": "!",
    "▲↑": "^",
    "▼↓": "v",
    "→›▶": ">",
    "←‹◀": "<",
    "“”": '"',
    "µ": "u",
    "°": "o",
    "\xa0": " ",
}
TABLE = str.maketrans({one: to for many, to in _LIKE.items() for one in many})


class AsciiFilter(LineFilter):
    """Draws each of our symbols, and Textual's borders and scroll bars, as an ASCII character.

    The letters of logs and names are not changed.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment
            if segment.control or segment.text.isascii()
            else Segment(segment.text.translate(TABLE), segment.style)
            for segment in segments
        ]


ASCII = AsciiFilter()


class PrintableFilter(LineFilter):
    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment
            if segment.control or segment.text.isprintable()
            else Segment(CONTROLS.sub("", segment.text), segment.style)
            for segment in segments
        ]


PRINTABLE = PrintableFilter()


class FilterChain(LineFilter):
    """Several filters as one, because Textual looks up the result of each for each line."""

    def __init__(self, filters: tuple[LineFilter, ...]) -> None:
        super().__init__()
        self._filters = filters

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        for each in self._filters:
            segments = each.apply(segments, background)
        return segments


@lru_cache(maxsize=8)
def chain(*filters: LineFilter) -> FilterChain:
    """The same object for the same filters: it is the key of the results."""
    return FilterChain(filters)
