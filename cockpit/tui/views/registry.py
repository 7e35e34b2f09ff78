"""The views by name.

Each is imported when it is created, so that the first paint is not delayed.
"""

from __future__ import annotations

from cockpit.tui.views.view import View


def make(name: str) -> View:
    """Return a new view; raises KeyError for an unknown name."""
    match name:
        case "starting":
            from cockpit.tui.main.connecting_placeholder import StartingView

            return StartingView()
        case "overview":
            from cockpit.tui.views.overview.view import OverviewView

            return OverviewView()
        case "ranks":
            from cockpit.tui.views.ranks.view import RanksView

            return RanksView()
        case "charts":
            from cockpit.tui.views.charts.view import ChartsView

            return ChartsView()
        case "pods":
            from cockpit.tui.views.pods.view import PodsView

            return PodsView()
        case "jobs":
            from cockpit.tui.views.jobs.view import JobsView

            return JobsView()
        case "drills":
            from cockpit.tui.views.drills.view import DrillsView

            return DrillsView()
        case "alerts":
            from cockpit.tui.views.alerts.view import AlertsView

            return AlertsView()
        case "trials":
            from cockpit.tui.views.trials.view import TrialsView

            return TrialsView()
        case "nodes":
            from cockpit.tui.views.nodes.view import NodesView

            return NodesView()
        case "fleet":
            from cockpit.tui.views.fleet.view import FleetView

            return FleetView()
        case "runs":
            from cockpit.tui.views.runs.view import RunsView

            return RunsView()
        case "serve":
            from cockpit.tui.views.serve.view import ServeView

            return ServeView()
    raise KeyError(name)
