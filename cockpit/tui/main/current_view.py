"""What the keys of the main screen work on: the application, and the view that is shown."""

from __future__ import annotations

from textual.screen import Screen

from cockpit.tui.app import CockpitApp
from cockpit.tui.view_state import Target
from cockpit.tui.views.view import View


class Viewing(Screen[None]):
    def __init__(self) -> None:
        super().__init__()
        self.views: dict[str, View] = {}
        self.shown = "starting"

    @property
    def cockpit(self) -> CockpitApp:
        app = self.app
        assert isinstance(app, CockpitApp)
        return app

    @property
    def view(self) -> View:
        return self.views[self.shown]

    def target(self) -> Target | None:
        """What is selected, as long as it is there."""
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
