"""The charts of a run: which curves there are, and what happened on their time axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cockpit.report.document import Band, Chart, Kind, Line, Mark, MarkKind, Section
from cockpit.report.time_range import Extent, extent
from cockpit.store.run import RunView
from cockpit.store.store import Store
from training.telemetry.metric_table import ACTIVITY, CURVES, PARTS, Unit

KINDS: Mapping[Unit, Kind] = {
    "": Kind.NUMBER,
    "s": Kind.SECONDS,
    "B": Kind.BYTES,
    "%": Kind.PERCENT,
    "/s": Kind.RATE,
    "W": Kind.WATTS,
    "°C": Kind.CELSIUS,
}
REPORTED = 8
"""Charts of the values given to `ray.train.report`, beside the curves of each step."""
MARKS = 2_000


def charts(run: RunView) -> Section:
    when = extent(run)
    breaks = tuple(sorted(a.ended_s for a in run.attempts.values() if a.ended_s is not None))
    blocks = [*_measured(run, when, breaks), *_reported(run, when, breaks)]
    return Section("charts", "Charts", tuple(blocks))


def _measured(run: RunView, when: Extent, breaks: tuple[float, ...]) -> Iterator[Chart]:
    for name, metric in (CURVES | ACTIVITY).items():
        if name in PARTS:
            continue
        curve = run.curves[name]
        if len(curve) and (name != "checkpoint_s" or any(curve.values)):
            lines = (Line(metric.title, curve.times, curve.values),)
            band = None if metric.total else _band(run, name)
            kind = KINDS[metric.unit]
            yield Chart(name, metric.heading, kind, when.begin_s, when.end_s, lines, band, breaks)
        if name == "step_time_s":
            yield from _parts(run, when, breaks)


def _parts(run: RunView, when: Extent, breaks: tuple[float, ...]) -> Iterator[Chart]:
    """Return the parts of a step in one chart, without untimed ones (all zero)."""
    lines = tuple(
        Line(label, run.curves[name].times, run.curves[name].values)
        for name, label in PARTS.items()
        if any(run.curves[name].values)
    )
    if lines:
        span = when.begin_s, when.end_s
        yield Chart("sections_s", "Parts of a step", Kind.SECONDS, *span, lines, None, breaks)


def _band(run: RunView, name: str) -> Band | None:
    low, high = run.bands[f"{name}.p10"], run.bands[f"{name}.p90"]
    if not len(low) or len(low) != len(high):
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


def marks(store: Store, run: RunView) -> tuple[Mark, ...]:
    """Return events in order of time, bounded: above the limit, rare kinds first."""
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
