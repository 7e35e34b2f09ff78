"""The actions of the main screen on drills, each with a confirmation."""

from __future__ import annotations

from cockpit.model.cluster import NodeType
from cockpit.tui.main.current_view import Viewing


class Drilling(Viewing):
    def action_drill(self) -> None:
        from cockpit.tui.changes import drills

        chosen = self.target()
        if chosen is not None and chosen.kind == "day":
            self.cockpit.attempt(drills.typed(self.cockpit, [chosen.name]))
            return
        fault, target = self._selected_fault()
        self.cockpit.attempt(drills.choose(self.cockpit, fault, target))

    def action_abort(self) -> None:
        from cockpit.tui.changes import drills

        self.cockpit.attempt(drills.abort(self.cockpit))

    def _again(self, key: str) -> str:
        """The fault of an earlier drill; empty when it is not in the catalogue."""
        from cockpit.drills.faults.catalog import NAMES
        from cockpit.tui.views.drills.view import DrillsView

        past = self.view.past.get(key) if isinstance(self.view, DrillsView) else None
        faults = [one.drill.fault for one in past.recoveries] if past is not None else []
        return next((fault for fault in faults if fault in NAMES), "")

    def _selected_fault(self) -> tuple[str, str]:
        """Return the selected fault and its target.

        The fault may be that of a selected earlier drill. The target is the selected rank or pod;
        without one, a random pod.
        """
        chosen = self.target()
        if chosen is None:
            return "", "random"
        if chosen.kind == "fault":
            return chosen.name, "random"
        if chosen.kind == "drill":
            return self._again(chosen.name), "random"
        if chosen.kind == "rank":
            return "", f"rank:{chosen.name}"
        if chosen.kind == "pod":
            pod = self.cockpit.store.pods.get(chosen.name)
            is_head = pod is not None and pod.node_type is NodeType.HEAD
            return "", "head" if is_head else chosen.name
        return "", "random"
