"""The keys that act on the view of charts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cockpit.tui import keys
from cockpit.tui.main.current_view import Viewing

if TYPE_CHECKING:  # imported where it is first used: the first paint waits for no chart
    from cockpit.tui.views.charts.view import ChartsView

ZOOM = 0.5
"""The share of the window that remains after one zoom."""
PAN = 0.5
FAR_CELLS = 10


def _on_charts(change: Callable[[ChartsView], None]) -> Callable[[Charting], None]:
    """An action that changes the view of charts and draws it again."""
    return lambda screen: screen.change_charts(change)


class Charting(Viewing):
    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A key that two views use acts on the visible one."""
        own = keys.BY_ID if keys.KEYMAP else keys.SHARED
        if action in own and self.view_name not in keys.BY_ID[action].views:
            return False
        return super().check_action(action, parameters)

    action_chart_full = _on_charts(lambda view: view.toggle_full())
    action_aggregate = _on_charts(lambda view: view.toggle_ranks())
    action_zoom_in = _on_charts(lambda view: view.zoom(ZOOM))
    action_zoom_out = _on_charts(lambda view: view.zoom(1 / ZOOM))
    action_zoom_all = _on_charts(lambda view: view.show_all())
    action_pan_left = _on_charts(lambda view: view.pan(-PAN))
    action_pan_right = _on_charts(lambda view: view.pan(PAN))
    action_follow = _on_charts(lambda view: view.follow())
    action_cursor_left = _on_charts(lambda view: view.move_cursor(-1))
    action_cursor_right = _on_charts(lambda view: view.move_cursor(1))
    action_cursor_far_left = _on_charts(lambda view: view.move_cursor(-FAR_CELLS))
    action_cursor_far_right = _on_charts(lambda view: view.move_cursor(FAR_CELLS))
    action_cursor_begin = _on_charts(lambda view: view.cursor_to_begin())
    action_smooth = _on_charts(lambda view: view.smooth())
    action_log_scale = _on_charts(lambda view: view.toggle_log())
    action_x_axis = _on_charts(lambda view: view.next_axis())
    action_charts_next = _on_charts(lambda view: view.turn(1))
    action_charts_before = _on_charts(lambda view: view.turn(-1))
    action_chart_next = _on_charts(lambda view: view.select(1))
    action_chart_before = _on_charts(lambda view: view.select(-1))

    def action_compare(self) -> None:
        from cockpit.tui.views.charts.comparison import compare

        self.change_charts(lambda view: self.cockpit.attempt(compare(self.cockpit, view)))

    def on_charts_view_moved(self, message: ChartsView.Moved) -> None:
        message.stop()
        self.draw_now()

    def change_charts(self, change: Callable[[ChartsView], None]) -> None:
        if self.view_name != "charts" or self.shown != "charts":
            return
        from cockpit.tui.views.charts.view import ChartsView

        view = self.views.get("charts")
        if isinstance(view, ChartsView):
            change(view)
            self.draw_now()
