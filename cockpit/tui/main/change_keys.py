"""The keys that make changes. Each asks for confirmation; see `cockpit.tui.changes.changes`."""

from __future__ import annotations

from cockpit.model.error import CockpitError
from cockpit.store.selectors import current_run
from cockpit.tui.keys import NUMBERS
from cockpit.tui.main.current_view import Viewing, select_pod


class Changing(Viewing):
    def action_kill(self) -> None:
        from cockpit.tui.changes import drills

        target = self.target()
        if target is not None and target.kind in ("pod", "rank"):
            name = target.name if target.kind == "pod" else f"rank:{target.name}"
            self.cockpit.attempt(drills.kill(self.cockpit, name))
        else:
            self._without_target("delete_pod", "Nothing was killed.", select_pod())

    def action_scale_up(self) -> None:
        self._scale("+1")

    def action_scale_down(self) -> None:
        self._scale("-1")

    def _scale(self, by: str) -> None:
        from cockpit.tui.changes import changes

        store = self.cockpit.store
        target = self.target()
        group = next(iter(store.groups), "")
        if target is not None and target.kind == "group":
            group = target.name
        elif target is not None and target.kind == "pod" and target.name in store.pods:
            group = store.pods[target.name].group
        self.cockpit.attempt(changes.scale(self.cockpit, group, by))

    def action_stop(self) -> None:
        from cockpit.tui.changes import changes

        target, run = self.target(), current_run(self.cockpit.store)
        job = target.name if target and target.kind == "job" else run.submission_id if run else ""
        if job:
            self.cockpit.attempt(changes.stop(self.cockpit, job))
        else:
            self.notify("There is no job to stop.", timeout=4)

    def action_launch(self, job: str = "") -> None:
        from cockpit.tui.changes import changes

        self.cockpit.attempt(changes.launch(self.cockpit, job))

    def action_suspend(self) -> None:
        from cockpit.tui.changes import cluster

        self.cockpit.attempt(cluster.suspend(self.cockpit))

    def action_cordon(self) -> None:
        from cockpit.tui.changes import cluster

        target = self.target()
        if target is not None and target.kind == "node":
            self.cockpit.attempt(cluster.cordon(self.cockpit, target.name))
        else:
            todo = f"Select a K8s node ({NUMBERS['nodes']}) first."
            self._without_target("cordon", "Nothing was cordoned.", todo)

    def action_shell(self) -> None:
        from cockpit.tui.changes import shell

        if pod := self.pod():
            self.cockpit.attempt(shell.open_shell(self.cockpit, pod))
        else:
            self._without_target("exec", "No shell was opened.", select_pod())

    def _without_target(self, verb: str, what: str, todo: str) -> None:
        """Report why the verb is refused here; where it is not, what to select first."""
        if why := self.cockpit.refusal(verb):
            self.cockpit.trouble(CockpitError(what, why))
        else:
            self.notify(todo, timeout=4)
