"""The base of widgets that draw their own lines."""

from __future__ import annotations

from typing import Self

from textual.geometry import Region
from textual.widget import Widget

from cockpit.tui.theme import Palette

REGIONS_KEPT = 256
"""Beyond that, all of a widget that is not on the screen is marked as changed."""


class LineWidget(Widget):
    """A widget with its own `render_line`, whose memory does not grow with its changes.

    Textual 8 keeps each changed region in two sets. It empties one of them in its own
    `render_line`, which such a widget replaces, and the other when the widget is on the screen.
    """

    _palette: Palette | None = None

    @property
    def palette(self) -> Palette:
        """The theme's colours, read again after a change of the theme."""
        if self._palette is None:
            self._palette = Palette.of(self.app)
        return self._palette

    def notify_style_update(self) -> None:
        self._palette = None
        super().notify_style_update()

    def refresh(
        self,
        *regions: Region,
        repaint: bool = True,
        layout: bool = False,
        recompose: bool = False,
    ) -> Self:
        if len(self._repaint_regions) > REGIONS_KEPT:
            regions = ()
        super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)
        self._dirty_regions.clear()
        return self
