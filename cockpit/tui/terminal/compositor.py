"""Textual's compositor, which renders and sends only what an update shows.

For each update, Textual 8.2 asks every widget of the screen for all of its lines, those behind
other widgets included, and takes from them the part that has changed. In a view with a table that
is three quarters of the time from a key to its effect. It sends a changed part of a line from the
beginning of its widget.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, Compositor
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

    def render_partial_update(self) -> ChopsUpdate | None:
        found = super().render_partial_update()
        return SpansUpdate(found.chops, found.spans, found.chop_ends) if found else None


class SpansUpdate(ChopsUpdate):
    """The cells that have changed, and no cell before or after them on their line."""

    def render_segments(self, console: Console) -> str:
        """Return the escape sequences and texts for the terminal."""
        parts: list[str] = []
        for y, first, last in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                begin, stop = max(x, first), min(end, last)
                if strip is None or begin >= stop:
                    continue
                if (begin, stop) != (x, end):
                    strip = strip.crop(begin - x, stop - x)
                parts += (str(Control.move_to(begin, y)), strip.render(console))
        return "".join(parts)
