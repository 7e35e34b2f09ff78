"""The keys that inspect: an object, its description, its log."""

from __future__ import annotations

from cockpit.store.selectors import current_run
from cockpit.tui.main.current_view import select_pod
from cockpit.tui.main.run_keys import ComparingRuns
from cockpit.tui.view_state import Target

_WITHOUT_OBJECT = ("cluster", "fault", "day", "drill", "hang")
"""Kinds of targets that no object of this cluster belongs to. A selected cluster is one of the
fleet."""


class Inspecting(ComparingRuns):
    def action_open(self) -> None:
        """A click on the key in the footer; enter itself is a key of the table."""
        if (table := self.focused_table()) is not None:
            table.action_select()

    async def open_target(self) -> None:
        """Open the selected object, where the view does not do it."""
        target = self.target()
        if target is None:
            return
        if target.kind == "rank":
            from cockpit.tui.views.ranks.page import RankScreen

            self.app.push_screen(RankScreen(int(target.name)))
        elif target.kind == "hang":
            from cockpit.tui.views.hang.page import HangPage

            self.app.push_screen(HangPage())
        elif target.kind == "job":
            await self.show_log(f"job:{target.name}")
        elif target.kind == "cluster":
            from cockpit.tui.views.fleet.view import FleetView

            if isinstance(self.view, FleetView) and (ref := self.view.chosen()) is not None:
                self.cockpit.switch(ref)
        else:
            self.action_object()

    def action_object(self) -> None:
        from cockpit.tui.changes import inspection

        if self.view_name == "runs":
            super().action_object()
        elif (target := self._inspected()) is not None:
            self.cockpit.attempt(inspection.show_object(self.cockpit, target))

    def action_describe(self) -> None:
        from cockpit.tui.changes import inspection

        if (target := self._inspected()) is not None:
            self.cockpit.attempt(inspection.describe(self.cockpit, target))

    def _inspected(self) -> Target | None:
        """The selected object; without a selection, the cluster."""
        target = self.target()
        ref = self.cockpit.store.ref
        if target is None and self.view.NAME == "overview" and ref is not None:
            return Target("cluster", ref.name)
        if target is None:
            self.notify("Nothing is selected here.", timeout=3)
        elif target.kind in _WITHOUT_OBJECT:
            self.notify("There is no object to show in this view.", timeout=3)
            return None
        return target

    async def action_logs(self) -> None:
        target = self.target()
        run = current_run(self.cockpit.store)
        if target is None or target.kind not in ("rank", "pod", "job"):
            jobs = [run.submission_id] if run and run.submission_id else []
            jobs += list(self.cockpit.store.jobs)
            if jobs:
                await self.show_log(f"job:{jobs[0]}")
            else:
                self.notify("There is no job yet whose log could be shown.", timeout=4)
        elif target.kind == "rank":
            from cockpit.tui.main import command_runner

            self.cockpit.attempt(command_runner.show_log_of(self, f"rank:{target.name}"))
        else:
            await self.show_log(f"{target.kind}:{target.name}")

    async def action_all_logs(self) -> None:
        """Show all logs of the run, merged by time; without a run, those of the newest job."""
        run = current_run(self.cockpit.store)
        await self.show_log(f"run:{run.id if run is not None else ''}")

    async def action_previous(self) -> None:
        name = self.pod()
        pod = self.cockpit.store.pods.get(name)
        if pod is None:
            self.notify(select_pod(), timeout=4)
        elif not pod.restarts:
            self.notify(f"{name} has not restarted, so it has no previous log.", markup=False)
        else:
            await self.show_log(f"previous:{name}")
