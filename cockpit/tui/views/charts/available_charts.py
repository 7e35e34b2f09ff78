"""Which charts a run can fill."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cockpit.store.run import CURVES, RunView
from cockpit.store.selectors import LOSS_NAMES, only_reports
from cockpit.tui.widgets.chart.axis import Unit


@dataclass(frozen=True, slots=True)
class Plot:
    """What one chart shows of a run, and of a rank."""

    id: str
    title: str
    unit: Unit
    curve: str
    """The field of a sample, or the name of a reported metric."""
    low: float | None = 0.0
    """Where its axis begins: at 0, small changes look small. None: at the lowest value."""
    reported: bool = False
    parts: tuple[tuple[str, str], ...] = ()
    """Of a chart of several curves: (field of a sample, label) of each."""


LOSS = Plot("loss", "Loss", "", "loss", low=None)
THROUGHPUT = Plot("throughput", "Samples", "/s", "samples_per_s")
STEP_TIME = Plot("step-time", "Step time", "s", "step_time_s")
GPU = Plot("gpu", "GPU", "%", "gpu_utilization_percent")
CPU = Plot("cpu", "CPU", "%", "cpu_percent")
MEMORY = Plot("memory", "Memory", "B", "memory_bytes")
PLOTS = (LOSS, THROUGHPUT, STEP_TIME, GPU, CPU, MEMORY)
"""Those of a rank's page, and the first of the charts."""
STEP_PARTS = Plot(
    "step-parts",
    "Step parts",
    "s",
    "",
    parts=(
        ("data_wait_s", "data wait"),
        ("forward_s", "forward"),
        ("backward_s", "backward"),
        ("comm_s", "comm"),
        ("optimizer_s", "optimizer"),
    ),
)
MORE_PLOTS = (
    STEP_PARTS,
    Plot("tokens", "Tokens", "/s", "tokens_per_s"),
    Plot("mfu", "MFU", "%", "mfu_percent"),
    Plot("grad-norm", "Gradient norm", "", "grad_norm"),
    Plot("learning-rate", "Learning rate", "", "learning_rate"),
    Plot("gpu-memory", "GPU memory, all ranks", "B", "gpu_memory_bytes"),
    Plot("gpu-power", "GPU power, all ranks", "W", "gpu_power_w"),
    Plot("gpu-temperature", "GPU temperature", "°C", "gpu_temperature_c", low=None),
    Plot("data-wait", "Data wait", "s", "data_wait_s"),
    Plot("comm", "Communication", "s", "comm_s"),
    Plot("checkpoint", "Checkpoint stall", "s", "checkpoint_s"),
    Plot("forward", "Forward", "s", "forward_s"),
    Plot("backward", "Backward", "s", "backward_s"),
    Plot("optimizer", "Optimizer", "s", "optimizer_s"),
)
COUNTERS = ("epoch", "step", "global_step", "iteration", "training_iteration")
"""Reported numbers that only say how far it is."""
_UNITS: tuple[tuple[str, Unit], ...] = (
    ("_per_s", "/s"),
    ("_s", "s"),
    ("_bytes", "B"),
    ("_percent", "%"),
    ("_w", "W"),
    ("_c", "°C"),
)


def plots_of(runs: Iterable[RunView]) -> list[Plot]:
    """Those that have a point in any of the runs, the most looked at first."""
    runs = list(runs)
    told = {name for run in runs for name in run.curves}
    known = (*PLOTS, *MORE_PLOTS)
    found = [plot for plot in known if plot.curve in told]
    parts = [part for part in STEP_PARTS.parts if part[0] in told]
    if len(parts) > 1:
        found.insert(sum(plot in PLOTS for plot in found), STEP_PARTS)
    named = {plot.curve for plot in known}
    found += [plot_of(name) for name in CURVES if name in told and name not in named]
    reported = dict.fromkeys(name for run in runs for name in run.reported)
    return found + [plot_of(name, reported=True) for name in reported]


def in_place_of(plots: Sequence[Plot], run: RunView | None) -> Sequence[Plot]:
    """These plots; of a run that tells nothing by step what it reports, as many at most."""
    if run is None or not only_reports(run):
        return plots
    names = sorted(run.reported, key=_weight)
    return [plot_of(name, reported=True) for name in names[: len(plots)]]


def _weight(name: str) -> int:
    """A loss first, what only counts last."""
    if name in LOSS_NAMES or "loss" in name:
        return 0 if name in LOSS_NAMES else 1
    return 3 if name in COUNTERS else 2


def plot_of(name: str, *, reported: bool = False) -> Plot:
    """For what has no plot of its own; the end of the name tells the unit."""
    title = name.replace("_", " ")
    if reported:
        return Plot(f"reported {name}", f"{title} (reported)", "", name, low=None, reported=True)
    unit: Unit = next((unit for end, unit in _UNITS if name.endswith(end)), "")
    return Plot(name, title.capitalize(), unit, name)
