"""The base of the main screen's keys: the application, and the visible view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.screen import Screen

from cockpit.tui import keys
from cockpit.tui.app_base import AppBase
from cockpit.tui.terminal.compositor import FrontCompositor
from cockpit.tui.view_state import Target
from cockpit.tui.views.view import View

if TYPE_CHECKING:
    from cockpit.tui.widgets.table.table import LineTable


def select_pod() -> str:
    """What to do where an action needs a pod."""
    return f"Select a pod ({keys.NUMBERS['pods']}) or a rank ({keys.NUMBERS['ranks']}) first."


class Viewing(Screen[None]):
    def __init__(self) -> None:
        super().__init__()
        self._compositor = FrontCompositor()
        self.views: dict[str, View] = {}
        self.shown = "starting"
        self.view_name = keys.VIEWS[0]
        self.filters: dict[str, str] = {}
        """The filter in use, by view."""

    @property
    def cockpit(self) -> AppBase:
        app = self.app
        assert isinstance(app, AppBase)
        return app

    @property
    def view(self) -> View:
        return self.views[self.shown]

    def set_filter(self, text: str) -> None:
        """Filter the view; an empty text shows all."""
        self.filters[self.view_name] = text
        self.view.filter(text)
        self.draw_now()

    def focused_table(self) -> LineTable | None:
        """The table of the view that has, or had last, the focus."""
        from cockpit.tui.views.sorted_view import SortedView

        return self.view.focused_table() if isinstance(self.view, SortedView) else None

    def target(self) -> Target | None:
        """The selected object, while it exists."""
        return self.view.target()

    def pod(self) -> str:
        """The selected pod, or the one under the selected rank; empty without."""
        from cockpit.store.selectors import current_run, pod_of_rank

        target = self.target()
        if target is not None and target.kind == "pod":
            return target.name
        run = current_run(self.cockpit.store)
        if target is None or target.kind != "rank" or run is None:
            return ""
        rank = run.ranks.get(int(target.name))
        found = pod_of_rank(self.cockpit.store, rank) if rank else None
        return found.name if found else ""

    async def show_log(self, stream: str) -> None:
        raise NotImplementedError

    async def action_all_logs(self) -> None:
        """Show all logs of the run."""
        raise NotImplementedError

    async def ask(self, mode: str, line: str = "") -> None:
        """Ask for a line at the bottom of the screen; see `Prompt`."""
        raise NotImplementedError

    async def action_view(self, name: str) -> None:
        """Show the view of that name."""
        raise NotImplementedError

    def draw_now(self) -> None:
        """Draw even while the screen is paused."""
        raise NotImplementedError
