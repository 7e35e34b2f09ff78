"""From series in the store to curves and marks of a chart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from cockpit.model.text import one_line
from cockpit.store.run import RankView, RunView
from cockpit.store.selectors import ranks_in_order
from cockpit.store.series import Series
from cockpit.store.store import Store
from cockpit.tui.keys import shown_key
from cockpit.tui.rows.text import job_to_run
from cockpit.tui.view_state import ViewState
from cockpit.tui.views.charts.available_charts import (
    CPU,
    GPU,
    LOSS,
    MEMORY,
    PLOTS,
    STEP_TIME,
    THROUGHPUT,
    Plot,
    in_place_of,
)
from cockpit.tui.widgets.chart.chart import Curve, LineChart, Mark

__all__ = [
    "CPU",
    "GPU",
    "LOSS",
    "MEMORY",
    "PLOTS",
    "STEP_TIME",
    "THROUGHPUT",
    "Plot",
    "RunChart",
    "end",
    "has_gpus",
    "marks_of",
    "no_samples",
    "shown_for",
]

COLOURS = 8
"""How many curves a theme has colors for; of more ranks, this number is drawn."""


class RunChart(LineChart):
    """A chart of one plot, redrawn at most once a second, unless there is new data."""

    def __init__(self, plot: Plot) -> None:
        super().__init__(plot.title, unit=plot.unit, clock=True, low=plot.low, id=plot.id)
        self.plot = plot
        self._shown: object = None

    def show(self, curves: Sequence[Curve], marks: Sequence[Mark], now_s: float) -> None:
        newest = [(c.label, len(c.times), c.times[-1]) for c in curves if len(c.times)]
        shown = (int(now_s), newest, len(marks))
        if shown != self._shown:
            self._shown = shown
            self.set_marks(marks)
            self.set_curves(curves, now_s)

    def set_plot(self, plot: Plot) -> None:
        """Draw another plot from now on."""
        if plot != self.plot:
            self.plot, self._shown = plot, None
            self.set_options(replace(self.options, title=plot.title, unit=plot.unit, low=plot.low))

    def show_run(self, run: RunView | None, marks: Sequence[Mark], now_s: float) -> None:
        """The run as one curve."""
        series = self._of_run(run) if run else None
        self.show(
            [Curve("", series.times, series.values)] if series else [], marks, end(run, now_s)
        )

    def _of_run(self, run: RunView) -> Series:
        return run.reported[self.plot.curve] if self.plot.reported else run.curves[self.plot.curve]

    def show_rank(self, run: RunView, rank: RankView, marks: Sequence[Mark], now_s: float) -> None:
        """Reported metrics are stored for the run only: their mean is used."""
        plot = self.plot
        series = self._of_run(run) if plot.reported else rank.curves[plot.curve]
        self.show([Curve("", series.times, series.values)], marks, end(run, now_s))

    def show_ranks(self, run: RunView | None, marks: Sequence[Mark], now_s: float) -> None:
        """One curve a rank; of a large world, ranks spread evenly over it."""
        if self.plot.reported:
            self.show_run(run, marks, now_s)
            return
        name = self.plot.curve
        ranks = [r for r in ranks_in_order(run) if name in r.curves] if run else []
        if len(ranks) > COLOURS:
            ranks = [ranks[at * (len(ranks) - 1) // (COLOURS - 1)] for at in range(COLOURS)]
        curves = [
            Curve(
                f"rank {rank.rank}",
                rank.curves[name].times,
                rank.curves[name].values,
                f"curve-{number % COLOURS + 1}",
            )
            for number, rank in enumerate(ranks)
        ]
        self.show(curves, marks, end(run, now_s))


def shown_for(
    state: ViewState, run: RunView | None, charts: Iterable[RunChart], plots: Sequence[Plot]
) -> list[RunChart]:
    """Charts of the plots, or of what the run reports instead; those left over are hidden."""
    drawn = in_place_of(plots, run)
    used = []
    for number, chart in enumerate(charts):
        chart.display = number < len(drawn)
        if chart.display:
            chart.set_plot(drawn[number])
            chart.set_empty(no_samples(state, run))
            used.append(chart)
    return used


def no_samples(state: ViewState, run: RunView | None) -> str:
    """The text of a chart without a curve: short, since a chart may be narrow."""
    if run is None and job_to_run(state) is None:
        return f"No run yet. Press {shown_key('launch')} to launch a job."
    return f"No samples yet. Press {shown_key('all_logs')} for the logs."


def has_gpus(run: RunView | None) -> bool:
    """Whether any rank has reported a GPU: otherwise there is no chart of it."""
    return run is not None and "gpu_utilization_percent" in run.curves


def end(run: RunView | None, now_s: float) -> float:
    """The end of the time axis: now, or the end of the run."""
    return run.ended_s if run is not None and run.ended_s is not None else now_s


def marks_of(store: Store, run: RunView | None, *, checkpoints: bool = False) -> list[Mark]:
    """Drills, attempts, alerts, the user's marks, and with `checkpoints` those of the run."""
    marks = [Mark(drill.injected_s, drill.fault, "drill") for drill in store.drills]
    marks += [Mark(mark.at_s, mark.text, "mark") for mark in store.marks]
    if run is not None:
        marks += [
            Mark(attempt.started_s, f"attempt {number}", "attempt")
            for number, attempt in run.attempts.items()
            if attempt.started_s is not None and number > 1
        ]
        if checkpoints:
            marks += [Mark(at_s, "", "checkpoint") for at_s, _ in run.checkpoints]
        for view in (*store.alerts.values(), *store.alerts_past):
            finding = view.alert.finding
            if finding.run_id in ("", run.id):
                marks.append(Mark(view.alert.raised_s, one_line(finding.kind), "alert"))
                if view.cleared_s is not None:
                    cleared = f"{one_line(finding.kind)} cleared"
                    marks.append(Mark(view.cleared_s, cleared, "cleared"))
    return marks
