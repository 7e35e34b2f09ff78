"""Which charts a run can fill."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from cockpit.store.run import RunView
from cockpit.store.selectors import LOSS_NAMES, only_reports
from training.telemetry.metric_table import ACTIVITY, CURVES, PARTS, Unit


class Plot(Struct, frozen=True):
    """The values of one chart, for a run and for a rank."""

    id: str
    title: str
    unit: Unit
    curve: str
    """The field of a sample, or the name of a reported metric."""
    low: float | None = 0.0
    """The lower end of its axis: at 0, small changes look small. None: the minimum."""
    reported: bool = False
    parts: tuple[tuple[str, str], ...] = ()
    """Of a chart of several curves: (field of a sample, label) of each."""


_FIRST = (
    "loss",
    "samples_per_s",
    "step_time_s",
    "gpu_utilization_percent",
    "cpu_percent",
    "memory_bytes",
)
_PLOTS = {
    name: Plot(
        name,
        metric.title if name in _FIRST else metric.heading,
        metric.unit,
        name,
        low=0.0 if metric.from_zero else None,
    )
    for name in dict.fromkeys((*_FIRST, *CURVES, *ACTIVITY))
    for metric in (CURVES.get(name) or ACTIVITY[name],)
}
PLOTS = LOSS, THROUGHPUT, STEP_TIME, GPU, CPU, MEMORY = tuple(_PLOTS[name] for name in _FIRST)
"""The charts of a rank's page, and the first of the charts."""
STEP_PARTS = Plot("step-parts", "Parts of a step", "s", "", parts=tuple(PARTS.items()))
COUNTERS = ("epoch", "step", "global_step", "iteration", "training_iteration")
"""Reported metrics that only show progress."""


def plots_of(runs: Iterable[RunView]) -> list[Plot]:
    """Charts with a point in any of the runs, the most used first."""
    runs = list(runs)
    names = {name for run in runs for name in run.curves}
    found = [plot for name, plot in _PLOTS.items() if name in names]
    if sum(name in names for name in PARTS) > 1:
        found.insert(sum(plot in PLOTS for plot in found), STEP_PARTS)
    reported = dict.fromkeys(name for run in runs for name in run.reported)
    return found + [_of_report(name) for name in reported]


def in_place_of(plots: Sequence[Plot], run: RunView | None) -> Sequence[Plot]:
    """These plots; for a run without steps the metrics that it reports, up to the same number."""
    if run is None or not only_reports(run):
        return plots
    names = sorted(run.reported, key=_weight)
    return [_of_report(name) for name in names[: len(plots)]]


def _weight(name: str) -> int:
    """A loss first, what only counts last."""
    if name in LOSS_NAMES or "loss" in name:
        return 0 if name in LOSS_NAMES else 1
    return 3 if name in COUNTERS else 2


def _of_report(name: str) -> Plot:
    title = f"{name.replace('_', ' ')} (reported)"
    return Plot(f"reported {name}", title, "", name, low=None, reported=True)
