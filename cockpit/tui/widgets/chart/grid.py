"""Characters and their styles by cell."""

from __future__ import annotations

from msgspec import Struct

from cockpit.tui.terminal.cells import width_of


class Grid(Struct):
    """One character and its style a cell. A wide character leaves the next cell empty."""

    width: int
    height: int
    characters: list[list[str]] = []
    styles: list[list[str]] = []

    def __post_init__(self) -> None:
        self.characters = [[" "] * self.width for _ in range(self.height)]
        self.styles = [[""] * self.width for _ in range(self.height)]

    def put(self, x: int, y: int, text: str, style: str) -> None:
        """Write a text; what is outside is cut off."""
        if not 0 <= y < self.height:
            return
        for char in text:
            cells = width_of(char)
            if cells == 0:
                continue
            if x >= 0 and x + cells <= self.width:
                self.characters[y][x], self.styles[y][x] = char, style
                if cells == 2:
                    self.characters[y][x + 1], self.styles[y][x + 1] = "", style
            x += cells

    def text(self) -> str:
        """Without styles, for tests and snapshots as text."""
        return "\n".join("".join(row).rstrip() for row in self.characters)
