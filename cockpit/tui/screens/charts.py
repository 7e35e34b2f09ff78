"""View 3: the curves of the run, with drills, attempts, checkpoints and marks on the time axis."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Grid
from textual.content import Content

from cockpit.store.select import current_run
from cockpit.tui import format
from cockpit.tui.frame import Line
from cockpit.tui.look import Look
from cockpit.tui.screens.curves import PLOTS, RunChart, has_gpus, marks_of
from cockpit.tui.screens.view import View

WINDOWS_S = (60.0, 300.0, 900.0, 3600.0)
"""From nearest to widest; wider still is all of it."""


class ChartsView(View):
    NAME = "charts"
    SCOPED_CSS = False  # it speaks of the screen's size classes
    DEFAULT_CSS = """
    ChartsView Grid { grid-size: 2; grid-gutter: 0 2; padding: 0 1; }
    ChartsView #loss.-broad { column-span: 2; }
    .-wide ChartsView Grid { grid-size: 3; grid-gutter: 1 2; }
    .-short ChartsView RunChart, .-tiny ChartsView RunChart, .-narrow ChartsView RunChart {
        display: none;
    }
    .-short ChartsView #loss, .-tiny ChartsView #loss, .-narrow ChartsView #loss { display: block; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.per_rank = False
        self.window_s: float | None = None

    def compose(self) -> ComposeResult:
        yield Line(id="scope")
        with Grid():
            for plot in PLOTS:
                yield RunChart(plot)

    def redraw(self, look: Look) -> None:
        run = current_run(look.store)
        marks = marks_of(look.store, run, checkpoints=True)
        self.query_one("#gpu").display = has_gpus(run)
        self.query_one("#loss").set_class(not has_gpus(run), "-broad")
        for chart in self.query(RunChart):
            if not chart.display:
                continue
            chart.set_window(self.window_s)
            if self.per_rank:
                chart.show_ranks(run, marks, look.now_s)
            else:
                chart.show_run(run, marks, look.now_s)
        what = "one curve a rank" if self.per_rank else "whole run"
        window = "all of it" if self.window_s is None else f"last {format.age(self.window_s)}"
        legend = Content.assemble(
            Content.styled("  D", "$bad bold"),
            Content.styled(" drill", "$muted"),
            Content.styled("  A", "$warning bold"),
            Content.styled(" attempt", "$muted"),
            Content.styled("  C", "$good bold"),
            Content.styled(" checkpoint", "$muted"),
            Content.styled("  M", "$accent bold"),
            Content.styled(" mark", "$muted"),
        )
        self.query_one("#scope", Line).show(
            Content.assemble(
                Content.styled(f" {run.name or run.id}" if run else " No run yet", "bold"),
                Content.styled(f"  {what} · {window}", "$muted"),
                legend,
            )
        )

    def toggle_ranks(self) -> None:
        self.per_rank = not self.per_rank

    def zoom(self, by: int) -> None:
        """-1 nearer, 1 wider, 0 all."""
        steps: list[float | None] = [*WINDOWS_S, None]
        at = steps.index(self.window_s) + by if by else len(steps) - 1
        self.window_s = steps[min(max(at, 0), len(steps) - 1)]
