"""Text cut and padded to a number of terminal cells: a wide character takes two."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from rich.cells import cell_len, set_cell_size

Align = Literal["left", "right"]
Cut = Literal["end", "middle"]
"""Where a long text is cut."""
ELLIPSIS = "…"


def width_of(text: str) -> int:
    """In terminal cells."""
    return len(text) if text.isascii() else cell_len(text)


@lru_cache(maxsize=2048)
def fit(text: str, width: int, align: Align = "left", cut: Cut = "end") -> str:
    """The text in exactly `width` cells; an ellipsis replaces what does not fit."""
    if width <= 0:
        return ""
    if not text.isprintable():
        # A newline or a tab in one cell would break the layout.
        text = "".join(char if char.isprintable() else " " for char in text)
    cells = width_of(text)
    if cells > width:
        if cut == "middle" and width > 4:
            return fit(shorten(text, width), width)
        return ELLIPSIS if width == 1 else set_cell_size(text, width - 1) + ELLIPSIS
    pad = " " * (width - cells)
    return pad + text if align == "right" else text + pad


def shorten(text: str, width: int) -> str:
    """At most `width` cells of it, cut in the middle: names differ at both of their ends."""
    if width_of(text) <= width:
        return text
    if width < 3:
        return fit(text, width)
    tail = (width - 1) // 2
    end = text[-tail:]
    while width_of(end) > tail:
        end = end[1:]
    return set_cell_size(text, width - 1 - width_of(end)).rstrip() + ELLIPSIS + end
