"""The UI in ASCII, for terminals whose font or encoding has no other characters."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_LIKE = {
    "─━═▔▁▂▃▄": "-",
    "│┃║┊┆▌▐▎▊▏▕┤├": "|",
    "┌┐└┘╭╮╰╯┬┴┼": "+",
    "▅▆▇█■▀": "#",
    "●◌•": "*",
    "·": ".",
    "…": "~",
    "–—−": "-",
    "✓": "+",
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
