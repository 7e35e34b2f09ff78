"""The keys that act on the view of charts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cockpit.tui import keys
from cockpit.tui.main.current_view import Viewing

if TYPE_CHECKING:  # imported where it is first used: the first paint waits for no chart
    from cockpit.tui.views.charts.view import ChartsView

ZOOM = 0.5
"""What is left of the window by one key."""
PAN = 0.5
FAR_CELLS = 10


class Charting(Viewing):
    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A key that two views use does what belongs to the one that is shown."""
        if action in keys.SHARED and self.view_name not in keys.BY_ID[action].views:
            return False
        return super().check_action(action, parameters)

    def action_chart_full(self) -> None:
        self._charts(lambda view: view.toggle_full())

    def action_aggregate(self) -> None:
        self._charts(lambda view: view.toggle_ranks())

    def action_zoom_in(self) -> None:
        self._charts(lambda view: view.zoom(ZOOM))

    def action_zoom_out(self) -> None:
        self._charts(lambda view: view.zoom(1 / ZOOM))

    def action_zoom_all(self) -> None:
        self._charts(lambda view: view.show_all())

    def action_pan_left(self) -> None:
        self._charts(lambda view: view.pan(-PAN))

    def action_pan_right(self) -> None:
        self._charts(lambda view: view.pan(PAN))

    def action_follow(self) -> None:
        self._charts(lambda view: view.follow())

    def action_cursor_left(self) -> None:
        self._charts(lambda view: view.move_cursor(-1))

    def action_cursor_right(self) -> None:
        self._charts(lambda view: view.move_cursor(1))

    def action_cursor_far_left(self) -> None:
        self._charts(lambda view: view.move_cursor(-FAR_CELLS))

    def action_cursor_far_right(self) -> None:
        self._charts(lambda view: view.move_cursor(FAR_CELLS))

    def action_cursor_begin(self) -> None:
        self._charts(lambda view: view.cursor_to_begin())

    def action_smooth(self) -> None:
        self._charts(lambda view: view.smooth())

    def action_log_scale(self) -> None:
        self._charts(lambda view: view.toggle_log())

    def action_x_axis(self) -> None:
        self._charts(lambda view: view.next_axis())

    def action_charts_next(self) -> None:
        self._charts(lambda view: view.turn(1))

    def action_charts_before(self) -> None:
        self._charts(lambda view: view.turn(-1))

    def action_chart_next(self) -> None:
        self._charts(lambda view: view.select(1))

    def action_chart_before(self) -> None:
        self._charts(lambda view: view.select(-1))

    def action_compare(self) -> None:
        from cockpit.tui.views.charts.comparison import compare

        self._charts(lambda view: self.cockpit.attempt(compare(self.cockpit, view)))

    def on_charts_view_moved(self, message: ChartsView.Moved) -> None:
        message.stop()
        self.draw_now()

    def _charts(self, change: Callable[[ChartsView], None]) -> None:
        if self.view_name != "charts" or self.shown != "charts":
            return
        from cockpit.tui.views.charts.view import ChartsView

        view = self.views.get("charts")
        if isinstance(view, ChartsView):
            change(view)
            self.draw_now()
