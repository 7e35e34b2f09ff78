"""Textual's compositor, which renders and sends only what an update shows.

For each update, Textual 8.2 asks every widget of the screen for all of its lines, those behind
other widgets included, and takes from them the part that has changed. In a view with a table that
is three quarters of the time from a key to its effect. It sends a changed part of a line from the
beginning of its widget.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.console import Console
from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from cockpit.tui.terminal.backlog import is_behind

FRAME_S = 1 / 60
"""The shortest time between two updates that are painted at once, as between Textual's."""


class FrontCompositor(Compositor):
    """Takes the widgets from front to back, until they cover the region that is drawn."""

    painted_s = 0.0
    """The monotonic time of the last `paint_now`."""

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
                parts += (f"\x1b[{y + 1};{begin + 1}H", strip.render(console))
        return "".join(parts)


def paint_now(widget: Widget) -> None:
    """Paint the changes of the widget, and all other pending changes of its screen.

    Textual paints it four messages later (the widget's idle, the screen's update and idle, a
    timer), with what other widgets do in between. Keys that follow within FRAME_S, and those of a
    terminal that does not read, are left to that.
    """
    screen, now_s = widget.screen, time.monotonic()
    compositor = screen._compositor
    if not isinstance(compositor, FrontCompositor) or is_behind(widget.app._driver):
        return
    if now_s - compositor.painted_s < FRAME_S:
        return
    compositor.painted_s = now_s
    with screen._context():
        screen._dirty_widgets.add(widget)
        screen._on_timer_update()
