"""The keys of the views of all runs and of all clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cockpit.model.error import CockpitError
from cockpit.tui.main.current_view import Viewing

if TYPE_CHECKING:
    from cockpit.tui.views.runs.view import RunsView


class ComparingRuns(Viewing):
    def action_object(self) -> None:
        """The facts of the selected run."""
        if (view := self._runs()) is not None:
            view.show_facts()

    def action_compare_runs(self) -> None:
        if (view := self._runs()) is not None:
            self.cockpit.attempt(view.compare())

    async def action_annotate(self) -> None:
        """Ask for tags and a note, with the present ones as the beginning."""
        if (view := self._runs()) is None:
            return
        try:
            line = view.annotated()
        except CockpitError as error:
            self.cockpit.trouble(error)
        else:
            await self.ask("#", line)

    def annotate(self, line: str) -> None:
        if (view := self._runs()) is not None:
            try:
                view.annotate(line)
            except CockpitError as error:
                self.cockpit.trouble(error)
            self.draw_now()

    def action_favorite(self) -> None:
        """List the selected cluster of the fleet first, or no longer."""
        from cockpit.tui.main.command_runner import favorite
        from cockpit.tui.views.fleet.view import FleetView

        if isinstance(self.view, FleetView) and (ref := self.view.chosen()) is not None:
            favorite(self.cockpit, ref)

    def _runs(self) -> RunsView | None:
        from cockpit.tui.views.runs.view import RunsView

        return self.view if isinstance(self.view, RunsView) else None
