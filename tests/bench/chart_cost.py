"""The cost of the Charts view: `python -m tests.bench.chart_cost`.

Six charts of 14,400 points each on a terminal of 200×50, drawn again after a new point, after a
move of the cursor, and zoomed and panned to another window each time. A redraw folds and draws the
curves, finds the difference to the last picture, and creates every line of all six as styled text:
more than is painted, because the terminal gets only the cells that changed.
"""

from __future__ import annotations

import gc
import math
import random
import sys
import time
from collections.abc import Callable

from msgspec.structs import replace
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from cockpit.model.run import Checkpoint, RunState
from cockpit.store.run import RUN_POINTS, RunView
from cockpit.store.store import Store
from cockpit.tui.theme import semantic_variables
from cockpit.tui.view_state import ViewState
from cockpit.tui.views.charts.panel import Panel
from cockpit.tui.views.charts.view import ChartsView
from tests.bench.table import Line, Table, load, percentile, show, spread
from tests.bench.table_cost import Counter

TIMES, PROMISE_MS, SMOOTH = 200, 15.0, 0.9
BEGUN_S = 1_763_712_000.0
BANDS = ("loss", "samples_per_s", "step_time_s", "gpu_utilization_percent")
NAMES = (*BANDS, "cpu_percent", "memory_bytes")


class Bench(App[None]):
    CSS = "ChartsView { height: 47; }"  # the rows of 50 inside the frame

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return semantic_variables(self.current_theme)

    def compose(self) -> ComposeResult:
        yield ChartsView()


class Run:
    """A run of ranks enough for bands, one point a second in each curve."""

    def __init__(self) -> None:
        self.random = random.Random(7)
        self.store = Store()
        self.run = self.store.runs.setdefault("r", RunView("r", "bench"))
        self.run.enter(BEGUN_S, RunState.RUNNING)
        self.run.attempt_view(1).started_s = BEGUN_S
        self.seconds = 0
        while self.seconds < RUN_POINTS:
            self.second()

    def second(self) -> None:
        at_s = BEGUN_S + self.seconds
        self.run.progress.append(at_s, 20.0 * self.seconds)
        for number, name in enumerate(NAMES):
            value = 2 + math.sin(self.seconds / (40 + 9 * number)) + self.random.gauss(0, 0.2)
            if name == "loss" and self.seconds % 5000 == 4000:
                value = math.nan
            self.run.curves.append(name, at_s, value)
            if name in BANDS:
                self.run.bands.append(f"{name}.p10", at_s, value - 0.5)
                self.run.bands.append(f"{name}.p90", at_s, value + 0.5)
        if self.seconds % 600 == 0:
            self.run.checkpoints.append((at_s, Checkpoint(self.seconds, "/c")))
        self.seconds += 1

    @property
    def view_state(self) -> ViewState:
        return ViewState(self.store, BEGUN_S + self.seconds)


def measured(view: ChartsView, run: Run, change: Callable[[int], object]) -> list[float]:
    """Milliseconds of each redraw after a change."""
    view.redraw(run.view_state)
    spent = []
    for number in range(TIMES):
        change(number)
        state = run.view_state
        begin = time.thread_time()
        view.redraw(state)
        for panel in view.query(Panel):
            if panel.display:
                for y in range(panel.size.height):
                    panel.render_line(y)
        spent.append(1e3 * (time.thread_time() - begin))
    return spent


def told(name: str, spent: list[float]) -> Line:
    worst = percentile(spent, 99)
    return Line(
        name,
        f"{spread(spent, 'ms', 2)}, p99 {worst:.2f} ms",
        f"p99 ≤ {PROMISE_MS:g} ms",
        worst <= PROMISE_MS,
    )


def cases(view: ChartsView, run: Run) -> list[Line]:
    def zoomed(number: int) -> None:
        view.viewport = view.viewport.whole()
        view.redraw(run.view_state)
        view.zoom(0.5 + 0.4 * (number % 5) / 5, BEGUN_S + number * RUN_POINTS / TIMES)

    lines = [told("a new point each", measured(view, run, lambda _: run.second()))]
    moves = measured(view, run, lambda at: view.move_cursor(-1 if at % 80 < 40 else 1))
    lines.append(told("the cursor moves", moves))
    lines.append(told("another window each", measured(view, run, zoomed)))
    view.back()
    view.show_all()
    view.viewport = replace(view.viewport, weight=SMOOTH)
    first = measured_once(view, run)
    lines.append(Line("the first one smoothed", f"{first:.2f} ms"))
    lines.append(
        told("smoothed, raw behind, a new point", measured(view, run, lambda _: run.second()))
    )
    lines.append(told("smoothed, another window each", measured(view, run, zoomed)))
    view.show_all()
    view.toggle_log()
    lines.append(told("logarithmic, smoothed", measured(view, run, lambda _: run.second())))
    view.next_axis()
    view.next_axis()
    first = measured_once(view, run)
    lines.append(Line("the first one by step", f"{first:.2f} ms"))
    lines.append(told("by step", measured(view, run, lambda _: run.second())))
    return lines


def measured_once(view: ChartsView, run: Run) -> float:
    begin = time.thread_time()
    view.redraw(run.view_state)
    return 1e3 * (time.thread_time() - begin)


def measure() -> Table:
    gc.set_threshold(50_000, 20, 20)  # as `cockpit.cli.main` does
    began = load()
    lines: list[Line] = []

    async def pilot(pilot: Pilot[object]) -> None:
        assert isinstance(pilot.app, Bench)
        run, view = Run(), pilot.app.query_one(ChartsView)
        view.redraw(run.view_state)
        await pilot.pause()
        view.redraw(run.view_state)
        await pilot.pause()
        assert sum(panel.display for panel in view.query(Panel)) == 6
        lines.extend(cases(view, run))
        pilot.app.exit()

    Bench(driver_class=Counter).run(size=(200, 50), mouse=False, auto_pilot=pilot)
    return Table(
        "A view of charts",
        f"Six charts of {RUN_POINTS:,} points each, four of them with a band, on a terminal of "
        f"200×50; {TIMES} redraws of each kind, median (quartiles).",
        lines,
        began,
    )


if __name__ == "__main__":
    sys.exit(show(measure))
