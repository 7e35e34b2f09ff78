"""The running drill as text: its stage, the results of its probes, the state of the run. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from msgspec import Struct

from cockpit import format
from cockpit.insight.recovery.measurement import Reading, recovery
from cockpit.model.drill import Drill, Milestone, ProbeResult, Recovery, Stage, Verdict
from cockpit.model.text import one_line
from cockpit.store.drill import DrillView
from cockpit.store.run import RunView
from cockpit.store.store import Store
from cockpit.tui.rows.text import attempt_end, clock, last_failed_attempt, run_status, run_style
from cockpit.tui.terminal.symbols import Symbols, symbols
from cockpit.tui.widgets.bars.phases import instants, is_open, waits_for
from cockpit.tui.widgets.chart.sparkline import sparkline
from cockpit.tui.widgets.few_lines import StyledLine

BEFORE_S = 30.0
"""How much of the curves before the fault is shown."""
LEAST_AFTER_S = 30.0
GAP_S = 2.5
"""Ranks report once a second: after this time, a rank is stale."""
VERDICT_STYLES = {
    Verdict.PASSED: "good",
    Verdict.FAILED: "bad",
    Verdict.ABORTED: "warning",
    Verdict.REFUSED: "warning",
    Verdict.BROKEN: "bad",
}


class Live(Struct, frozen=True):
    """A running drill, or the newest one, with the faults injected so far."""

    view: DrillView
    recoveries: tuple[Recovery, ...]

    @property
    def going(self) -> bool:
        return is_going(self.view)

    @property
    def last(self) -> Recovery | None:
        """Of the newest fault."""
        return self.recoveries[-1] if self.recoveries else None


def is_going(view: DrillView) -> bool:
    return view.record is None and view.stage is not Stage.ENDED


def going(store: Store) -> DrillView | None:
    """The running drill; there is at most one on a cluster."""
    return next((view for view in reversed(store.drilling.values()) if is_going(view)), None)


def injected(store: Store, record_id: str) -> list[Drill]:
    """The faults that the drill has injected so far."""
    return [drill for drill in store.drills if drill.id.startswith(f"{record_id}.")]


def live(store: Store, view: DrillView, readings: Mapping[str, Reading] | None = None) -> Live:
    """As measured by now. `readings`: of the run just before each fault, where they are known."""
    before = readings or {}
    if view.record is not None and view.record.recoveries:
        return Live(view, view.record.recoveries)
    return Live(
        view, tuple(recovery(store, one, before.get(one.id)) for one in injected(store, view.id))
    )


def line(found: Live, now_s: float) -> StyledLine:
    """A summary in one line, for other views."""
    parts: StyledLine = [(f"{found.view.name} ", "bold"), (_stage(found), "warning")]
    last = found.last
    if last is None:
        return [*parts, (f"  {one_line(found.view.message)}", "muted")]
    since = format.duration(max(0.0, now_s - last.drill.injected_s))
    waits = _waits(last, lasts=found.view.stage is Stage.DURING)
    return [*parts, (f"  {since} since the fault", ""), (f"  {waits}", "muted")]


def headline(found: Live, now_s: float) -> list[StyledLine]:
    """Its stage and targets; the reason for its verdict once it is over."""
    view, last, record = found.view, found.last, found.view.record
    if record is not None:
        head: StyledLine = [
            (f"{record.verdict.value} ", f"bold {VERDICT_STYLES[record.verdict]}"),
            (one_line(record.why, 200), ""),
        ]
    else:
        head = [(_stage(found), "bold warning")]
        if last is not None:
            head.append((f"  {format.duration(max(0.0, now_s - last.drill.injected_s))}", "bold"))
            head.append((" since the fault", ""))
        if last is None or view.stage not in (Stage.RECOVERING, Stage.AFTER):
            head.append((f"  {one_line(view.message, 200)}", "muted"))
        else:
            head.append((f"  {_waits(last)}", "muted"))
    return [head, *([_targets(found)] if last is not None else [])]


def _stage(found: Live) -> str:
    """When its run has recovered, a drill measures until the run is as fast as before."""
    if found.view.stage is Stage.RECOVERING and found.last is not None and found.last.recovered:
        return "recovered, measuring"
    return found.view.stage.value


def _targets(found: Live) -> StyledLine:
    """The target of the newest fault, and its number among several."""
    last = found.last
    assert last is not None
    drill, count = last.drill, len(found.recoveries)
    parts: StyledLine = [(f"last of {count} faults: " if count > 1 else "", "muted")]
    parts += [(drill.fault, "bold"), (" of ", "muted"), (one_line(drill.target, 120), "")]
    if drill.ranks:
        parts.append((f"  {format.ranks(drill.ranks, 8)}", ""))
    parts.append((f"  at {clock(drill.injected_s)}", "muted"))
    given = "  ".join(f"{name}={value}" for name, value in drill.parameters.items())
    return [*parts, (f"  {one_line(given, 120)}", "muted")]


def _waits(measured: Recovery, *, lasts: bool = False) -> str:
    """`lasts`: the fault itself still lasts, and the run continues, as far as is known."""
    waited = waits_for(measured)
    if waited is None:
        return "all milestones are measured; next: the probes"
    seen = [one for one in instants(measured) if one.after_s > 0 and one.milestone != "injected"]
    after = f"{seen[-1].milestone.value}; " if seen else ""
    what = waited.value
    if is_open(measured):
        may_come = f"{Milestone.THROUGHPUT_BACK.value} or {Milestone.ATTEMPT_ENDED.value}"
        what = "end of the fault" if lasts else may_come
    return f"{after}waits for {what}"


def probe_lines(probes: Sequence[ProbeResult], most: int) -> list[StyledLine]:
    """The newest result of each probe at each stage."""
    newest = {(one.probe, one.when): one for one in probes}
    shown = sorted(newest.values(), key=lambda one: one.at_s)[-most:]
    return [_probe(one) for one in shown]


def _probe(one: ProbeResult) -> StyledLine:
    good, bad, unknown = ("+", "x", "?") if symbols() is Symbols.ASCII else ("✓", "✗", "?")
    mark, style = {True: (good, "good"), False: (bad, "bad"), None: (unknown, "warning")}[one.ok]
    return [
        (f"{mark} ", f"bold {style}"),
        (f"{one_line(one.probe, 60)} ", ""),
        (f"{one.when}: ", "muted"),
        (one_line(one.value, 120), style if one.ok is not True else ""),
    ]


def ray_state(run: RunView | None, *, over: bool = False) -> StyledLine:
    """The run's state and position, and why its newest attempt ended.

    `over`: the surrounding lines are of the end of a drill, so that this line is labelled as
    current.
    """
    if run is None:
        return [("No run is active: only the pods are measured.", "muted")]
    parts: StyledLine = [("now ", "muted")] if over else []
    parts.append((run_status(run), f"bold {run_style(run)}"))
    if run.attempt is not None:
        parts.append((f"  attempt {run.attempt.number}", ""))
    if run.phases and not run.state.is_over:
        parts.append((f"  {run.phases[-1][2].value}", "muted"))
    if (last := last_failed_attempt(run)) is not None:
        parts.append((f"  attempt {last.number} {attempt_end(last.reason)}", "muted"))
    return parts


CURVES = (("loss", "loss"), ("samples/s", "samples_per_s"))


def curve_lines(run: RunView, at_s: float, now_s: float, width: int) -> list[StyledLine]:
    """Loss and throughput around the fault: grey before it, coloured after it.

    The number of a curve is the one at its end, even if the run has continued since.
    """
    start_s = at_s - BEFORE_S
    end_s = max(now_s, at_s + LEAST_AFTER_S)
    room = max(8, width - 24)
    split = round((at_s - start_s) / (end_s - start_s) * room)
    edge = "|" if symbols() is Symbols.ASCII else "│"
    lines: list[StyledLine] = []
    for number, (title, name) in enumerate(CURVES):
        series = run.curves[name]
        text = timed(series.times, series.values, (start_s, end_s), room)
        count = bisect_right(series.times, end_s)
        last = series.values[count - 1] if count else None
        value = format.number(last) if name == "loss" else format.si(last)
        lines.append(
            [
                (f"{title:<11}", "muted"),
                (text[:split], "muted"),
                (edge, "bad"),
                (text[split:], f"curve-{number + 1}"),
                (f"  {value}" if count else "", ""),
            ]
        )
    return lines


def timed(
    times: Sequence[float], values: Sequence[float], span: tuple[float, float], width: int
) -> str:
    """One character per time interval; an interval without data is empty."""
    start_s, end_s = span
    cells: list[float | None] = []
    at = bisect_left(times, start_s)
    for cell in range(width):
        until_s = start_s + (cell + 1) / width * (end_s - start_s)
        after = bisect_left(times, until_s, lo=at)
        part = values[at:after]
        if len(part):
            cells.append(sum(part) / len(part))
        else:  # the line continues between two consecutive points
            follows = after > 0 and until_s - times[after - 1] < GAP_S
            cells.append(cells[-1] if cells and follows else None)
        at = after
    averages = [value for value in cells if value is not None]
    drawn = iter(sparkline(averages, len(averages))) if averages else iter("")
    return "".join(" " if value is None else next(drawn) for value in cells)
