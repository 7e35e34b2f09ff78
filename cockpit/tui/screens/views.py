"""The views by name. Each is imported when it is made, so that the first paint waits for none."""

from __future__ import annotations

from cockpit.tui.screens.view import View


def make(name: str) -> View:
    """A new view; raises KeyError for a name that is none."""
    match name:
        case "starting":
            from cockpit.tui.screens.starting import StartingView

            return StartingView()
        case "overview":
            from cockpit.tui.screens.overview import OverviewView

            return OverviewView()
        case "ranks":
            from cockpit.tui.screens.ranks import RanksView

            return RanksView()
        case "charts":
            from cockpit.tui.screens.charts import ChartsView

            return ChartsView()
        case "pods":
            from cockpit.tui.screens.pods import PodsView

            return PodsView()
        case "jobs":
            from cockpit.tui.screens.jobs import JobsView

            return JobsView()
        case "drills":
            from cockpit.tui.screens.drills import DrillsView

            return DrillsView()
        case "alerts":
            from cockpit.tui.screens.alerts import AlertsView

            return AlertsView()
        case "trials":
            from cockpit.tui.screens.trials import TrialsView

            return TrialsView()
        case "machines":
            from cockpit.tui.screens.machines import MachinesView

            return MachinesView()
        case "fleet":
            from cockpit.tui.screens.fleet import FleetView

            return FleetView()
    raise KeyError(name)
