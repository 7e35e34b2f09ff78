"""Remove control characters from all displayed text.

Sources already clean their text. This covers what they miss, in every widget, title and message.
"""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from cockpit.model.text import CONTROLS


class PrintableFilter(LineFilter):
    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment
            if segment.control or segment.text.isprintable()
            else Segment(CONTROLS.sub("", segment.text), segment.style)
            for segment in segments
        ]


PRINTABLE = PrintableFilter()
