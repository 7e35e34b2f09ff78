"""One chart of the view of charts: it is pointed at, scrolled and chosen with the mouse."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message

from cockpit.tui.views.charts.available_charts import Plot
from cockpit.tui.views.charts.viewport import Reach, Viewport
from cockpit.tui.widgets.chart.chart import ChartOptions, Curve, LineChart, Mark

WHEEL = 0.8
"""How much of what is shown is left by one notch of the wheel."""
LEFT = 8
"""Cells for the labels of values: `800MiB` fits."""


class Panel(LineChart):
    """A chart of any plot, redrawn on new data, and at least once a second."""

    class Pointed(Message):
        """The mouse has been pressed or moved over this place of the axis."""

        def __init__(self, panel: Panel, place: float) -> None:
            super().__init__()
            self.panel, self.place = panel, place

    class Scrolled(Message):
        """The wheel: show `factor` of what is shown, about a place; or move by a `share` of it."""

        def __init__(self, panel: Panel, place: float, factor: float, share: float = 0.0) -> None:
            super().__init__()
            self.panel, self.place, self.factor, self.share = panel, place, factor, share

    class Opened(Message):
        """A double click."""

        def __init__(self, panel: Panel) -> None:
            super().__init__()
            self.panel = panel

    def __init__(self) -> None:
        super().__init__(clock=True)
        self.plot: Plot | None = None
        self._shown: object = None
        self._held = False

    def show(
        self,
        plot: Plot,
        curves: Sequence[Curve],
        marks: Sequence[Mark],
        viewport: Viewport,
        reach: Reach | None,
        origin: float,
        *,
        selected: bool,
        empty: str,
    ) -> None:
        """`origin`: the start of the run, in Unix seconds."""
        self.plot = plot
        options = ChartOptions(
            plot.title,
            plot.unit,
            viewport.span,
            viewport.end,
            reach.start if reach else None,
            viewport.axis,
            origin,
            low=None if viewport.log else plot.low,
            log=viewport.log,
            cursor=viewport.cursor,
            left=LEFT,
            selected=selected,
            empty=empty,
        )
        newest = [(curve.label, curve.color, len(curve.times), curve.times[-1]) for curve in curves]
        at = int(reach.newest) if reach else 0
        shown = (options, newest, at, tuple(marks), viewport.weight)
        if shown != self._shown:
            self._shown = shown
            self.set_all(curves, marks, options, reach.newest if reach else 0.0)

    # -- the mouse

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._held = True
        self.capture_mouse()
        self._point(event)

    def on_mouse_up(self) -> None:
        self._held = False
        self.release_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._held:
            self._point(event)

    def on_click(self, event: events.Click) -> None:
        if event.chain == 2:
            self.post_message(self.Opened(self))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._scroll(event, WHEEL)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._scroll(event, 1 / WHEEL)

    def on_mouse_scroll_left(self, event: events.MouseScrollLeft) -> None:
        self._scroll(event, 1.0, -0.1)

    def on_mouse_scroll_right(self, event: events.MouseScrollRight) -> None:
        self._scroll(event, 1.0, 0.1)

    def _point(self, event: events.MouseEvent) -> None:
        event.stop()
        stretch = self.stretch
        if stretch is not None:
            self.post_message(self.Pointed(self, stretch.place(event.x)))

    def _scroll(self, event: events.MouseEvent, factor: float, share: float = 0.0) -> None:
        event.stop()
        stretch = self.stretch
        if stretch is None:
            return
        if event.shift or event.ctrl:
            factor, share = 1.0, -0.1 if factor < 1 else 0.1
        self.post_message(self.Scrolled(self, stretch.place(event.x), factor, share))
