"""A recovery as a bar by phase, live while it goes on."""

from __future__ import annotations

from pathlib import Path

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from cockpit.model.drill import Recovery
from cockpit.tui.cells import fit
from cockpit.tui.symbols import symbols
from cockpit.tui.theme import Palette
from cockpit.tui.widgets.phases import bar, legend, phases, summary

__all__ = ["RecoveryBar", "summary"]

_Line = list[tuple[str, str]]


class RecoveryBar(Widget):
    """Up to three lines, by its height: the bar, its legend, the summary."""

    DEFAULT_CSS = Path(__file__).with_suffix(".tcss").read_text(encoding="utf-8")

    def __init__(
        self, *, empty: str = "No drill yet", id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._empty = empty
        self._recovery: Recovery | None = None
        self._now_s = 0.0
        self._scale_s: float | None = None
        self._lines: list[_Line] = []
        self._palette: Palette | None = None

    def set_recovery(
        self, recovery: Recovery | None, now_s: float, scale_s: float | None = None
    ) -> None:
        """Show this; `now_s` in Unix seconds. `scale_s` makes several bars comparable."""
        self._recovery, self._now_s, self._scale_s = recovery, now_s, scale_s
        self._redraw()

    def on_resize(self) -> None:
        self._redraw()

    def notify_style_update(self) -> None:
        self._palette = None
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        if y >= len(self._lines):
            return Strip.blank(width, base)
        if self._palette is None:
            self._palette = Palette.of(self.app)
        palette = self._palette
        segments = [Segment(text, base + palette.style(words)) for text, words in self._lines[y]]
        return Strip(segments).adjust_cell_length(width, base)

    def _draw(self) -> list[_Line]:
        width = self.size.width
        if self._recovery is None:
            return [[(fit(self._empty, width), "muted")]]
        found = phases(self._recovery, self._now_s)
        said = fit(summary(self._recovery, self._now_s), width)
        return [
            bar(found, width, symbols(), self._scale_s),
            legend(found, width, symbols()),
            [(said, "good" if self._recovery.recovered else "warning")],
        ]

    def _redraw(self) -> None:
        if not self.size:
            return
        before, self._lines = self._lines, self._draw()
        for y in range(max(len(before), len(self._lines))):
            if before[y : y + 1] != self._lines[y : y + 1]:
                self.refresh(Region(0, y, self.size.width, 1))
