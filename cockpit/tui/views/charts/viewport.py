"""The visible range of all charts: zoom, pan, and cursor. Pure."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from cockpit.tui.widgets.chart.axis import Axis

LEAST_S = 2.0
LEAST_STEPS = 4.0
"""Nothing shorter is shown, in the unit of the axis."""
WEIGHTS = (0.0, 0.6, 0.9, 0.97)
"""Of the smoothing, from none to most."""
AXES = (Axis.CLOCK, Axis.SINCE, Axis.STEP)


class Reach(NamedTuple):
    """The complete range of the axis, and its newest value, which a viewport may follow.

    `end` is after `newest` if a compared run is longer.
    """

    start: float
    newest: float
    end: float


class Viewport(Struct, frozen=True):
    """One for all charts of the view: they stay in step."""

    axis: Axis = Axis.CLOCK
    span: float | None = None
    """The length of the visible range, in the unit of the axis; None: all of it."""
    end: float | None = None
    """The end of the visible range; None: it follows new data."""
    cursor: float | None = None
    log: bool = False
    weight: float = 0.0
    """Of the smoothing, as in TensorBoard."""

    @property
    def by_step(self) -> bool:
        return self.axis is Axis.STEP

    def shown(self, reach: Reach) -> tuple[float, float]:
        """From where to where."""
        end = reach.newest if self.end is None else self.end
        span = reach.newest - reach.start if self.span is None else self.span
        return end - span, end

    def zoomed(self, factor: float, reach: Reach, about: float | None = None) -> Viewport:
        """`factor` below 1 shows less.

        `about` keeps its position on the screen; by default the cursor, or the newest point while
        it is followed.
        """
        start, end = self.shown(reach)
        whole = reach.end - reach.start
        span = max((end - start) * factor, LEAST_STEPS if self.by_step else LEAST_S)
        if span >= whole:
            return replace(self, span=None, end=None)
        if about is None and self.cursor is not None and start <= self.cursor <= end:
            about = self.cursor
        if about is None:
            about = end if self.end is None else (start + end) / 2
        if self.end is None and about >= end:
            return replace(self, span=span)
        share = (about - start) / (end - start) if end > start else 1.0
        return replace(self, span=span)._ending(about + (1 - share) * span, reach)

    def panned(self, share: float, reach: Reach) -> Viewport:
        """Move by a share of what is shown; what has no past or future stays where it is."""
        start, end = self.shown(reach)
        if self.span is None and reach.end <= reach.newest:
            return self
        viewport = self if self.span is not None else replace(self, span=end - start)
        return viewport._ending(end + share * (end - start), reach)

    def moved(self, cells: int, cell_size: float, reach: Reach) -> Viewport:
        """Move the cursor by that many cells; the first move sets it to the newest point.

        At an edge it pans the visible range.
        """
        start, end = self.shown(reach)
        size = cell_size if cell_size > 0 else (end - start) / 100
        if self.cursor is None:
            return replace(self, cursor=min(end, reach.newest) - size / 2)
        # Half a cell inside, so that the place never wanders between two of them.
        place = min(max(self.cursor + cells * size, reach.start), reach.end - size / 2)
        viewport = replace(self, cursor=place)
        if self.span is not None and place < start:
            viewport = viewport._ending(end - (start - place), reach)
        elif self.span is not None and place >= end:
            viewport = viewport._ending(place + size, reach)
        return viewport

    def following(self) -> Viewport:
        """Back to the newest, as near as before, without a cursor."""
        return replace(self, end=None, cursor=None)

    def whole(self) -> Viewport:
        return replace(self, span=None, end=None)

    def smoother(self) -> Viewport:
        """The next weight; after the maximum, none."""
        at = WEIGHTS.index(self.weight) if self.weight in WEIGHTS else -1
        return replace(self, weight=WEIGHTS[(at + 1) % len(WEIGHTS)])

    @property
    def next_axis(self) -> Axis:
        at = AXES.index(self.axis) if self.axis in AXES else -1
        return AXES[(at + 1) % len(AXES)]

    def _ending(self, end: float, reach: Reach) -> Viewport:
        span = self.span or 0.0
        end = max(end, reach.start + span)
        if (reach.newest <= end and end - reach.newest < 0.02 * span) or end > reach.end:
            return replace(self, end=None if reach.end <= reach.newest else reach.end)
        return replace(self, end=end)
