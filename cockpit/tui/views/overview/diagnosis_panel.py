"""The diagnosis in a few lines: what the bars of shares show, and the facts under them."""

from __future__ import annotations

from textual.content import Content

from cockpit import format
from cockpit.insight.metrics.diagnosis import Diagnosis
from cockpit.insight.metrics.eta import Eta
from cockpit.model.text import one_line
from cockpit.store.store import AlertView
from cockpit.tui.rows.text import clock
from cockpit.tui.views.alerts.rows import SEVERITY_STYLES, state_of
from cockpit.tui.widgets.bars.shares import LABEL_CELLS, Part

_STEP_STYLES = {
    "input": "curve-2",
    "compute": "good",
    "communication": "curve-1",
    "checkpoint": "curve-4",
}
_LOSS_STYLES = {
    "useful": "good",
    "scheduling": "curve-1",
    "starting": "curve-7",
    "restart after failure": "bad",
    "redone steps": "curve-2",
    "checkpoint stall": "curve-4",
    "restore": "curve-6",
    "resize": "curve-5",
    "stalled": "warning",
    "ending": "muted",
    "unknown": "muted",
}


def step_parts(found: Diagnosis) -> list[Part]:
    if found.shares is None:
        return []
    return [Part(name, percent, _STEP_STYLES[name]) for name, percent in found.shares.parts]


def goodput_parts(found: Diagnosis) -> list[Part]:
    if found.goodput is None:
        return []
    return [Part(name, percent, _LOSS_STYLES[name]) for name, percent in found.goodput.parts]


def facts(found: Diagnosis, width: int, *, is_over: bool) -> Content:
    """The ETA, what is unsaved, what was lost, and what to try: a line each.

    `is_over`: the run has ended.
    """
    lines = [] if is_over else [_fact("done in", *_eta(found.eta), width)]
    risk = found.at_risk
    if risk is not None:
        text = format.duration(risk.seconds)
        if risk.steps is not None:
            text = f"{format.plural(risk.steps, 'step')}, {text}"
        if risk.gpu_seconds:
            text += f", {_gpu_time(risk.gpu_seconds / 3600)}"
        saved = f"newest checkpoint {format.age(risk.age_s)} old" if risk.age_s is not None else ""
        lines.append(_fact("unsaved", text, saved or "no checkpoint yet", width))
    if found.save_interval is not None:
        lines.append(_fact("saving", found.save_interval.text, found.save_interval.why, width))
    if found.cost is not None and found.cost.gpus and found.knows_lost_time:
        cost = found.cost
        more = f"of {_gpu_time(cost.all_gpu_hours)}, {cost.gpus:g} GPUs"
        lines.append(_fact("lost", _gpu_time(cost.lost), more, width))
    if found.cost is not None and found.cost.text:
        spent, _, more = found.cost.text.partition(", ")
        lines.append(_fact("cost", spent, more, width))
    if found.scaling:
        scaling = ", ".join(
            f"{it.world_size}: {it.efficiency_percent:.0f} %" for it in found.scaling
        )
        lines.append(_fact("scaling", scaling, "efficiency by ranks", width))
    if found.gpus is not None:
        text, _, bound = found.gpus.text.partition(": ")
        lines.append(_fact("GPUs", bound, f"{text}; try: {found.gpus.bound.todo}", width))
    if found.shares is not None:
        lines.append(_fact("to try", "", found.shares.todo, width))
    return Content("\n").join(lines)


def _eta(eta: Eta | None) -> tuple[str, str]:
    if eta is None:
        return format.DASH, "needs the pace of the run and a target (steps or epochs)"
    low, high = format.duration(eta.low_s), format.duration(eta.high_s)
    span = f"{low} to {high}, " if low != high else ""
    at = clock(eta.at_s + eta.left_s)
    done = f"{eta.done:,.4g} of {eta.target:,.6g} {eta.unit}"
    return format.duration(eta.left_s), f"{span}at {at}; {done}"


def _gpu_time(hours: float) -> str:
    return f"{hours:.1f} GPU-h" if hours >= 1 else f"{hours * 3600:.0f} GPU-s"


def _fact(name: str, value: str, more: str, width: int) -> Content:
    line = Content.assemble(
        Content.styled(f"{name:<{LABEL_CELLS}}", "$muted"),
        Content.styled(f"{value}  " if value and more else value, "bold"),
        Content.styled(more, "$muted"),
    )
    return line.truncate(max(1, width), ellipsis=True) if line.cell_length > width else line


def details(view: AlertView, now_s: float) -> Content:
    """The facts of one alert; the lines wrap."""
    finding, alert = view.alert.finding, view.alert
    style = SEVERITY_STYLES[finding.severity]
    when = f"  since {clock(alert.raised_s)}"
    if view.cleared_s is not None:
        when += f", cleared at {clock(view.cleared_s)}"
    elif (state := state_of(view, now_s)) != "raised":
        when += f", {state}"
        if view.snoozed_until_s is not None and state == "snoozed":
            when += f" for {format.age(view.snoozed_until_s - now_s)}"
    parts = [
        Content.assemble(
            Content.styled(one_line(finding.what, 400), f"bold ${style}"),
            Content.styled(when, "$muted"),
        )
    ]
    if finding.todo:
        parts.append(Content.assemble(Content.styled("try  ", "$muted"), one_line(finding.todo)))
    if finding.why:
        why = Content.assemble(
            Content.styled("why  ", "$muted"), Content.styled(one_line(finding.why, 400), "$muted")
        )
        parts.append(why)
    return Content("\n").join(parts)
