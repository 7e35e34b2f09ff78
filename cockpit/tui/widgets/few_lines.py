"""A widget of a few styled lines, which paints only changed ones."""

from __future__ import annotations

from typing import TypeAlias

from rich.segment import Segment
from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip

from cockpit.tui.terminal.cells import ELLIPSIS, fit, width_of
from cockpit.tui.widgets.line_widget import LineWidget

StyledLine: TypeAlias = list[tuple[str, str]]
"""Texts with their styles."""


def cut(line: StyledLine, width: int) -> StyledLine:
    """The line in at most `width` cells; an ellipsis replaces what does not fit."""
    if width_of("".join(text for text, _ in line).rstrip()) <= width:
        return line
    kept: StyledLine = []
    room = width
    for text, style in line:
        # A text that exactly fills the room is cut too, since more follows.
        if width_of(text) >= room:
            return [*kept, (fit(text + ELLIPSIS, room), style)]
        kept.append((text, style))
        room -= width_of(text)
    return kept


def as_content(*lines: StyledLine) -> Content:
    """Styled lines as a text that may wrap."""
    return Content("\n").join(
        Content.assemble(*(Content.styled(text, markup(style)) for text, style in line))
        for line in lines
    )


def markup(style: str) -> str:
    """A style as Textual markup."""
    return " ".join(w if w in ("bold", "reverse") else f"${w}" for w in style.split())


class FewLines(LineWidget):
    """A subclass draws in `draw_lines`, and calls `draw_again` when its content has changed."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: list[StyledLine] = []

    def draw_lines(self) -> list[StyledLine]:
        """For the present size."""
        raise NotImplementedError

    def draw_again(self) -> None:
        if not self.size:
            return
        before, self._lines = self._lines, self.draw_lines()
        for y in range(max(len(before), len(self._lines))):
            if before[y : y + 1] != self._lines[y : y + 1]:
                self.refresh(Region(0, y, self.size.width, 1))

    def on_resize(self) -> None:
        self.draw_again()

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        if y >= len(self._lines):
            return Strip.blank(width, base)
        style = self.palette.style
        segments = [Segment(text, base + style(name)) for text, name in self._lines[y]]
        return Strip(segments).adjust_cell_length(width, base)
