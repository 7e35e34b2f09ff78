"""A recovery as a bar by phase, live while it lasts."""

from __future__ import annotations

from pathlib import Path

from cockpit.model.drill import Recovery
from cockpit.tui.terminal.cells import fit
from cockpit.tui.terminal.symbols import symbols
from cockpit.tui.widgets.bars.phases import Phase, bar, legend, named, phases, summary
from cockpit.tui.widgets.few_lines import FewLines, StyledLine

__all__ = ["RecoveryBar", "summary"]


class RecoveryBar(FewLines):
    """As many lines as its height: the bar, its legend on up to `legend_lines`, the summary."""

    DEFAULT_CSS = Path(__file__).with_suffix(".tcss").read_text(encoding="utf-8")

    def __init__(
        self, *, legend_lines: int = 1, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._legend_lines = legend_lines
        self._recovery: Recovery | None = None
        self._now_s = 0.0
        self._scale_s: float | None = None
        self._going: bool | None = None

    def set_recovery(
        self,
        recovery: Recovery | None,
        now_s: float,
        scale_s: float | None = None,
        *,
        going: bool | None = None,
    ) -> None:
        """Show this recovery; `now_s` in Unix seconds.

        `scale_s` makes several bars comparable. `going`: whether a milestone is pending; None:
        until the first new step.
        """
        self._recovery, self._now_s, self._scale_s = recovery, now_s, scale_s
        self._going = going
        self.draw_again()

    def draw_lines(self) -> list[StyledLine]:
        width = self.size.width
        if self._recovery is None:
            return [[(fit("No drill yet", width), "muted")]]
        found = phases(self._recovery, self._now_s, going=self._going)
        text = fit(summary(self._recovery, self._now_s), width)
        return [
            bar(found, width, symbols(), self._scale_s),
            *self._legend(found, width),
            [(text, "good" if self._recovery.recovered else "warning")],
        ]

    def lines_for(self, width: int) -> int:
        """How many lines the bar and its legend take there."""
        if self._recovery is None:
            return 1
        found = phases(self._recovery, self._now_s, going=self._going)
        return 1 + len(self._legend(found, width))

    def _legend(self, found: tuple[Phase, ...], width: int) -> list[StyledLine]:
        named_elsewhere = named(found, width, symbols(), self._scale_s)
        return legend(found, width, symbols(), self._legend_lines, named_elsewhere)
