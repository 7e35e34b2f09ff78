"""Shares of time as one bar with their names."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cockpit.tui.terminal.cells import fit, width_of
from cockpit.tui.terminal.symbols import Symbols, symbols
from cockpit.tui.widgets.few_lines import FewLines, StyledLine

LABEL_CELLS = 11
_LEAST_NAMED = 0.5


class Part(Struct, frozen=True):
    """A share in `percent`, in a style of the palette."""

    name: str
    percent: float
    style: str


def bar(parts: Sequence[Part], width: int, chosen: Symbols) -> StyledLine:
    """The parts side by side in `width` cells; each contains its name if there is room.

    Rounding errors do not accumulate: each part ends at the rounded sum of the parts so far.
    """
    line: StyledLine = []
    drawn, total = 0, 0.0
    whole = max(100.0, sum(part.percent for part in parts))
    for part in parts:
        total += part.percent
        cells = max(0, round(total / whole * width) - drawn)
        if cells:
            line.append((_inside(part, cells), f"reverse {part.style}"))
            drawn += cells
    if drawn < width:
        line.append((("." if chosen is Symbols.ASCII else "·") * (width - drawn), "muted"))
    return line


def legend(parts: Sequence[Part], width: int, chosen: Symbols) -> StyledLine:
    """Each part's name and percent after its colour, as many as there is room for."""
    dot = "*" if chosen is Symbols.ASCII else "■"
    line: StyledLine = []
    x = 0
    for part in parts:
        if part.percent < _LEAST_NAMED:
            continue
        text = f" {part.name} {part.percent:.0f} %"
        if x + 1 + width_of(text) > width:
            break
        line += [(dot, part.style), (f"{text}  ", "")]
        x += width_of(text) + 3
    return line


def _inside(part: Part, cells: int) -> str:
    for text in (f" {part.name} {part.percent:.0f} % ", f" {part.percent:.0f} % "):
        if width_of(text) <= cells:
            return text.ljust(cells)
    return " " * cells


class ShareBar(FewLines):
    """Two lines: a label and the bar, and the legend under it."""

    DEFAULT_CSS = """
    ShareBar { height: 2; width: 100%; background: $surface; color: $foreground; }
    """

    def __init__(self, label: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._label = label
        self._parts: tuple[Part, ...] = ()
        self._empty = ""

    def show_parts(self, parts: Sequence[Part], empty: str = "") -> None:
        """`empty` is shown when there is no part."""
        self._parts, self._empty = tuple(parts), empty
        self.draw_again()

    def draw_lines(self) -> list[StyledLine]:
        width = max(1, self.size.width - LABEL_CELLS)
        label = (fit(self._label, LABEL_CELLS), "muted")
        if not self._parts:
            return [[label, (fit(self._empty, width), "muted")]]
        return [
            [label, *bar(self._parts, width, symbols())],
            [(" " * LABEL_CELLS, ""), *legend(self._parts, width, symbols())],
        ]
