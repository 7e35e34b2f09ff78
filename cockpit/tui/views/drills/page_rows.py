"""All that is known of one drill, section by section. Pure."""

from __future__ import annotations

from cockpit import format
from cockpit.insight.recovery.drill_comparison import compared
from cockpit.model.drill import Recovery
from cockpit.model.text import one_line
from cockpit.tui.rows.text import attempt_end, clock
from cockpit.tui.views.drills.current_drill import probe_lines
from cockpit.tui.views.drills.history_rows import Past
from cockpit.tui.widgets.bars.phases import instants
from cockpit.tui.widgets.few_lines import StyledLine

LABEL = 12
MILESTONE = 22
MEASURE = 18
PROBES = 200


def title(measured: Recovery) -> StyledLine:
    """Each action with its target and time."""
    drill = measured.drill
    parts: StyledLine = [
        (drill.fault, "bold"),
        (" of ", "muted"),
        (one_line(drill.target, 160), ""),
    ]
    if drill.ranks:
        parts.append((f"  {format.ranks(drill.ranks, 16)}", ""))
    parts.append((f"  at {clock(drill.injected_s)}", "muted"))
    if drill.workload:
        parts.append((f"  {one_line(drill.workload, 40)}", "muted"))
    if drill.profile:
        parts.append((f"  recovery {one_line(drill.profile, 40)}", "muted"))
    given = "  ".join(f"{name}={value}" for name, value in drill.parameters.items())
    seed = f"  seed {drill.seed}" if drill.seed is not None else ""
    return [*parts, (f"  {one_line(given, 160)}{seed}", "muted")]


def timeline(measured: Recovery) -> list[StyledLine]:
    """Each milestone: its time, the time since the one before, and its source."""
    lines: list[StyledLine] = [
        [(f"{'AFTER':>9}  {'TOOK':>9}  {'MILESTONE':<{MILESTONE}}  SOURCE", "muted")]
    ]
    before_s = 0.0
    for one in instants(measured):
        took = f"+{format.duration(max(0.0, one.after_s - before_s))}"
        lines.append(
            [
                (f"{format.duration(one.after_s):>9}", "bold"),
                (f"  {took:>9}", "muted"),
                (f"  {one.milestone.value:<{MILESTONE}}", ""),
                (f"  {one_line(one.source, 80)}", "muted"),
            ]
        )
        before_s = max(before_s, one.after_s)
    if len(lines) == 1:
        return [[("No milestone was recorded.", "muted")]]
    return lines


def cost(measured: Recovery) -> list[StyledLine]:
    """The known costs."""
    costs: list[tuple[str, str]] = []
    if measured.steps_lost is not None:
        costs.append(("steps lost", format.count(measured.steps_lost)))
    if measured.seconds_lost is not None:
        costs.append(("time lost", format.duration(measured.seconds_lost)))
    if measured.gpu_seconds_lost is not None:
        costs.append(("GPU time", format.duration(measured.gpu_seconds_lost)))
    if measured.goodput_percent is not None:
        costs.append(("goodput", format.percent(measured.goodput_percent)))
    if measured.restarts:
        charged = f", counted against {measured.budget}" if measured.budget else ""
        costs.append(("restarts", f"{measured.restarts}{charged}"))
    if measured.interrupted is False:
        costs.append(("interrupted", "no: training continued in the same attempt"))
    if (loss := measured.continuity) is not None:
        label = "is continuous" if loss.continuous else "is not continuous"
        costs.append(
            (
                "loss",
                f"{label}: {format.number(loss.before)} before, {format.number(loss.after)} after",
            )
        )
    if measured.reason:
        costs.append(("attempt", attempt_end(measured.reason)))
    costs += [("missing", one_line(line, 300)) for line in measured.missing_data]
    return [_pair(name, text) for name, text in costs]


def notes_and_stages(past: Past) -> list[StyledLine]:
    """Its stages, its probes and its notes."""
    record = past.record
    if record is None:
        return []
    lines: list[StyledLine] = []
    if record.stages:
        stages = ", ".join(f"{stage.value} {clock(at_s)}" for stage, at_s in record.stages)
        lines.append(_pair("stages", stages))
    if record.game_day:
        lines.append(_pair("game day", one_line(record.game_day, 80)))
    for number, probe in enumerate(probe_lines(record.probes, PROBES)):
        lines.append([("probes".ljust(LABEL) if not number else " " * LABEL, "muted"), *probe])
    for number, note in enumerate(record.notes):
        label = "notes" if not number else ""
        lines.append(_pair(label, one_line(note, 300)))
    return lines


def beside(past: Past) -> list[StyledLine]:
    """Each number with those of earlier drills of the same kind."""
    record = past.record
    measures = compared(record, past.earlier) if record is not None else ()
    if not any(one.earlier for one in measures):
        return [[("There is no earlier drill of this kind to compare with.", "muted")]]
    lines: list[StyledLine] = [
        [(f"{'':{MEASURE}}{'THIS':>9}{'MEDIAN':>9}{'SPREAD':>9}  OF", "muted")]
    ]
    for one in measures:
        line: StyledLine = [
            (f"{one.name:{MEASURE}}", "muted"),
            (f"{_measured(one.value, one.unit):>9}", "bold bad" if one.regression else "bold"),
            (f"{_measured(one.median, one.unit):>9}", ""),
            (f"{_measured(one.spread, one.unit):>9}", "muted"),
            (f"  {one.earlier}", "muted"),
        ]
        lines.append([*line, ("  worse than usual", "bad")] if one.regression else line)
    return lines


def _measured(value: float | None, unit: str) -> str:
    if unit == "s" or value is None:
        return format.duration(value)
    return format.number(value, 3) if value % 1 else f"{value:,.0f}"


def _pair(name: str, text: str) -> StyledLine:
    return [(name.ljust(LABEL), "muted"), (text, "")]
