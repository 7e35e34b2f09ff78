"""The charts of a run: which curves there are, and what happened on their time axis."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.report.document import Band, Chart, Kind, Line, Mark, MarkKind, Section
from cockpit.report.time_range import Extent, extent
from cockpit.store.run import BANDS, RunView
from cockpit.store.store import Store

SECTIONS = ("data_wait_s", "forward_s", "backward_s", "comm_s", "optimizer_s", "checkpoint_s")
"""Left out where they are all zero: nothing was timed, or nothing took time."""
CHARTS: tuple[tuple[str, str, Kind, tuple[str, ...]], ...] = (
    ("loss", "Loss", Kind.NUMBER, ("loss",)),
    ("samples_per_s", "Throughput, samples of all ranks", Kind.RATE, ("samples_per_s",)),
    ("tokens_per_s", "Throughput, tokens of all ranks", Kind.RATE, ("tokens_per_s",)),
    ("step_time_s", "Step time, mean of the ranks", Kind.SECONDS, ("step_time_s",)),
    (
        "sections_s",
        "What a step is made of",
        Kind.SECONDS,
        SECTIONS[:-1],
    ),
    ("checkpoint_s", "Blocked on checkpoints, in each record", Kind.SECONDS, ("checkpoint_s",)),
    ("mfu_percent", "Model FLOPs utilisation", Kind.PERCENT, ("mfu_percent",)),
    (
        "gpu_utilization_percent",
        "GPU utilisation, mean of the ranks",
        Kind.PERCENT,
        ("gpu_utilization_percent",),
    ),
    ("gpu_memory_bytes", "GPU memory of all ranks", Kind.BYTES, ("gpu_memory_bytes",)),
    ("gpu_power_w", "GPU power of all ranks", Kind.WATTS, ("gpu_power_w",)),
    ("gpu_temperature_c", "GPU temperature, mean", Kind.CELSIUS, ("gpu_temperature_c",)),
    ("memory_bytes", "Memory of all ranks' processes", Kind.BYTES, ("memory_bytes",)),
    ("cpu_percent", "CPU of a rank's process, mean", Kind.PERCENT, ("cpu_percent",)),
    ("learning_rate", "Learning rate", Kind.NUMBER, ("learning_rate",)),
    ("grad_norm", "Gradient norm", Kind.NUMBER, ("grad_norm",)),
)
LABELS = {
    "data_wait_s": "data wait",
    "comm_s": "communication",
    "optimizer_s": "optimiser",
}
REPORTED = 8
"""Charts of what the job gave to `ray.train.report`, beside the curves of each step."""
MARKS = 2_000
BAND_KINDS = (Kind.NUMBER, Kind.PERCENT, Kind.SECONDS)
"""A band is of single ranks: it belongs to curves of means, not of sums."""


def charts(run: RunView) -> Section:
    when = extent(run)
    breaks = tuple(sorted(a.ended_s for a in run.attempts.values() if a.ended_s is not None))
    blocks = [*_measured(run, when, breaks), *_reported(run, when, breaks)]
    return Section("charts", "Charts", tuple(blocks))


def _measured(run: RunView, when: Extent, breaks: tuple[float, ...]) -> Iterator[Chart]:
    for name, title, kind, fields in CHARTS:
        lines = []
        for field in fields:
            curve = run.curves[field]
            if not len(curve) or (field in SECTIONS and not any(curve.values)):
                continue
            lines.append(Line(_label(field), curve.times, curve.values))
        if not lines:
            continue
        band = _band(run, name) if kind in BAND_KINDS else None
        yield Chart(name, title, kind, when.begin_s, when.end_s, tuple(lines), band, breaks)


def _band(run: RunView, name: str) -> Band | None:
    low, high = run.bands[f"{name}.p10"], run.bands[f"{name}.p90"]
    if name not in BANDS or not len(low) or len(low) != len(high):
        return None
    return Band(low.times, low.values, high.values)


def _reported(run: RunView, when: Extent, breaks: tuple[float, ...]) -> Iterator[Chart]:
    names = [name for name in run.reported if name not in run.curves]
    for name in names[:REPORTED]:
        curve = run.reported[name]
        line = Line(name, curve.times, curve.values)
        title = f"{name}, as reported"
        yield Chart(
            f"reported.{name}", title, Kind.NUMBER, when.begin_s, when.end_s, (line,), None, breaks
        )


def _label(field: str) -> str:
    plain = field
    for unit in ("_per_s", "_percent", "_bytes", "_s", "_w", "_c"):
        plain = plain.removesuffix(unit)
    return LABELS.get(field, plain.replace("_", " "))


def marks(store: Store, run: RunView) -> tuple[Mark, ...]:
    """What happened, in order of time: bounded, the rare kinds first when there is too much."""
    found = [
        Mark(MarkKind.ATTEMPT, attempt.started_s, f"attempt {number} starts")
        for number, attempt in run.attempts.items()
        if attempt.started_s is not None and number > min(run.attempts)
    ]
    found += [
        Mark(MarkKind.DRILL, drill.injected_s, f"{drill.fault} of {drill.target}")
        for drill in store.drills
        if drill.run_id == run.id
    ]
    for view in (*store.alerts_past, *store.alerts.values()):
        if view.alert.finding.run_id in ("", run.id):
            found.append(Mark(MarkKind.ALERT, view.alert.raised_s, view.alert.finding.what))
    found += [Mark(MarkKind.USER, marked.at_s, marked.text) for marked in store.marks]
    for at_s, checkpoint in run.checkpoints:
        label = "checkpoint" if checkpoint.step is None else f"at step {checkpoint.step:,}"
        found.append(Mark(MarkKind.CHECKPOINT, at_s, label))
    return tuple(sorted(found[:MARKS], key=lambda mark: mark.at_s))
