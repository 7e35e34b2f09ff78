"""Text cut and padded to a number of terminal cells: a wide character takes two."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from rich.cells import cell_len, set_cell_size

Align = Literal["left", "right"]
ELLIPSIS = "…"


def width_of(text: str) -> int:
    """In terminal cells."""
    return len(text) if text.isascii() else cell_len(text)


@lru_cache(maxsize=8192)
def fit(text: str, width: int, align: Align = "left") -> str:
    """The text in exactly `width` cells; what does not fit ends in an ellipsis."""
    if width <= 0:
        return ""
    if not text.isprintable():
        # A newline or a tab in one cell would break the whole screen.
        text = "".join(char if char.isprintable() else " " for char in text)
    cells = width_of(text)
    if cells > width:
        return ELLIPSIS if width == 1 else set_cell_size(text, width - 1) + ELLIPSIS
    pad = " " * (width - cells)
    return pad + text if align == "right" else text + pad
