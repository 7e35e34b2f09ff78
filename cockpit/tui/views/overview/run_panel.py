"""The Overview's sentences: the cluster, the run, its recovery."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from cockpit import format
from cockpit.insight.causes.text import headline
from cockpit.insight.causes.types import Advice, Category, Cause
from cockpit.insight.metrics.diagnosis import Diagnosis
from cockpit.insight.metrics.live_line import live_line
from cockpit.insight.metrics.prices import money
from cockpit.insight.metrics.stall import Stall
from cockpit.insight.recovery.measurement import is_settled
from cockpit.insight.recovery.text import brief
from cockpit.model.alert import Severity
from cockpit.model.drill import Recovery
from cockpit.model.run import Phase
from cockpit.model.text import one_line
from cockpit.store.run import RunView
from cockpit.store.selectors import (
    LOSS_NAMES,
    STALE_AFTER_S,
    age_s,
    loss_of,
    only_reports,
    retried_job,
)
from cockpit.tui.keys import NUMBERS, shown_key
from cockpit.tui.rows.text import (
    HEALTH_STYLES,
    attempt_end,
    clock,
    last_failed_attempt,
    no_run_lines,
    number_style,
    run_status,
    run_style,
    stale_message,
    stale_source_rows,
)
from cockpit.tui.view_state import ViewState
from cockpit.tui.widgets.bars.phases import ENDS_A_POD, is_open

LABEL_CELLS, LIVE_LINES = 11, 2
REPORTED_SHOWN = 4
"""Metrics of a report; charts and the rank's page have more."""


def health(view_state: ViewState, notes: Sequence[str] = ()) -> Content:
    """One line on the cluster, one on each note, and one on each source that is behind."""
    store = view_state.store
    if store.ref is None:
        return Content.styled("Connecting, no data yet …\nCheck with: cockpit doctor", "$muted")
    parts = [Content.styled(f"● {store.health.value}", f"${HEALTH_STYLES[store.health]} bold")]
    if store.ray_version:
        parts.append(Content.styled(f"  Ray {store.ray_version}", "$muted"))
    alive = [node for node in store.nodes.values() if node.alive]
    if alive:
        parts.append(Content.styled(f"  {format.plural(len(alive), 'node')}", "$muted"))
    if store.health_message:
        parts.append(Content.styled(f"\n{one_line(store.health_message)}", "$muted"))
    parts += [Content.styled(f"\n{one_line(note)}", "$warning") for note in notes]
    for name, age, why in stale_source_rows(view_state):
        parts.append(
            Content.styled(f"\n⚠ {stale_message(name, age, one_line(why, 80))}", "$warning")
        )
    return Content.assemble(*parts)


def live(
    view_state: ViewState,
    run: RunView,
    cause: Cause | None,
    stalled: Stall | None,
    width: int,
) -> Content:
    """What the run does now, in LIVE_LINES of at most `width` cells.

    Of a hang it has the place of the cause: the alert below begins with the collective.
    """
    line = live_line(run, view_state.now_s, cause, stalled, brief=True)
    job = retried_job(view_state.store, run)
    tries = f"; {job.tries} of RayJob {job.rayjob}" if job is not None else ""
    bad = stalled is not None or (run.state.is_over and not line.is_well)
    style = "good" if line.is_well else "bad" if bad else "warning"
    mark = "●" if line.is_well else "▲"
    lines = Content(f"{mark} {line.text}{tries}").wrap(width)
    if len(lines) > LIVE_LINES:
        rest = Content(" ").join(lines[LIVE_LINES - 1 :])
        lines[LIVE_LINES - 1 :] = [rest.truncate(width, ellipsis=True)]
    return Content("\n").join(lines).stylize(f"${style}", 0, len(mark) + 1)


def facts(
    view_state: ViewState,
    run: RunView | None,
    found: Diagnosis | None = None,
    stalled: Stall | None = None,
    *,
    with_cause: bool = True,
) -> Content:
    """The run in a few lines; numbers are grey once they are old.

    `found` is the newest analysis of the run, which may be some seconds old. `with_cause`: also if
    `live` names the cause, the reported reason of the last restart, the verdict and its advice.
    """
    if run is None:
        return Content.styled("\n".join(no_run_lines(view_state)), "$muted")
    attempt = run.attempt
    state = [Content.styled(run_status(run), f"bold ${run_style(run)}")]
    if attempt is not None:
        state.append(Content(f"  attempt {attempt.number}"))
    if run.world_size:
        state.append(Content.styled(f"  {format.plural(run.world_size, 'rank')}", "$muted"))
    if (phase := _phase(view_state, run)) is not None:
        state.append(phase)
    if stalled is not None:
        since = format.age(view_state.now_s - stalled.since_s)
        state.append(Content.styled(f"  STALLED for {since}", "bold $bad"))
    lines = [Content.assemble(*state)]
    reports = only_reports(run)
    last_updates = max((r.sample.at_s for r in run.ranks.values() if r.sample), default=None)
    age = age_s(run.reported_s if reports else last_updates, view_state.now_s)
    fresh = reports or (age is not None and age <= STALE_AFTER_S)
    style = "" if fresh or run.state.is_over else "$muted"
    accuracy = run.metrics.get("accuracy")
    epoch = max(
        (r.sample.epoch for r in run.ranks.values() if r.sample and r.sample.epoch is not None),
        default=run.metrics.get("epoch"),
    )
    last_loss = loss_of(run)
    pairs = [
        ("step", format.count(run.step or None)),
        ("epoch", format.number(epoch, 3)),
        ("loss", format.number(last_loss)),
        ("accuracy", format.percent(None if accuracy is None else 100 * accuracy)),
        ("samples/s", format.si(run.curves["samples_per_s"].last)),
        ("checkpoint", _checkpoint(run, view_state.now_s)),
    ]
    unknown: tuple[str, ...] = ("accuracy",) if accuracy is None else ()
    unknown += ("step", "samples/s") if reports and run.step is None else ()
    pairs = [pair for pair in pairs if pair[0] not in unknown]
    if reports:
        pairs += _reported(run)
    if found is not None:
        pairs += _worked_out(view_state, run, found)
    broken = {"loss"} if number_style(last_loss) else set()
    lines += _grid(pairs, style, broken)
    lines += _replicas(view_state, run)
    if reports and not run.state.is_over:
        text = f"last report {format.age(age)} ago; this run sends no samples per step"
        lines.append(Content.styled(text, "$muted"))
    elif not fresh and not run.state.is_over:
        waits = f"last sample {format.age(age)} ago" if age is not None else "no sample yet"
        lines.append(Content.styled(f"{waits}: waiting for the ranks", "$warning"))
    cause = found.cause if found is not None else None
    known = cause is not None and cause.category is not Category.UNKNOWN
    if (with_cause or not known) and (log := _last_restart(run)) is not None:
        lines.append(log)
    if with_cause and cause is not None:
        lines += _cause(cause)
    return Content("\n").join(lines)


def _replicas(view_state: ViewState, run: RunView) -> list[Content]:
    """Which replicas take part, which are missing, and which healed from which."""
    quorum = run.quorum
    if quorum is None or run.state.is_over:
        return []
    parts = [
        Content.styled(f"{'replicas':<{LABEL_CELLS}}", "$muted"),
        Content.styled(f"{len(quorum.members)} of {quorum.replicas}", "bold"),
        Content.styled(f"  quorum {quorum.number}", "$muted"),
    ]
    if missing := quorum.missing:
        since = format.age(age_s(quorum.at_s, view_state.now_s))
        parts.append(Content.styled(f"  without {format.ranks(missing)} for {since}", "$warning"))
    elif (heal := quorum.healed) is not None:
        text = f"  rank {heal.rank} healed from rank {heal.source}"
        text += f" at step {quorum.healed_step:,}" if quorum.healed_step is not None else ""
        parts.append(Content.styled(text, "$muted"))
    return [Content.assemble(*parts)]


def _reported(run: RunView) -> list[tuple[str, str]]:
    """The metrics of a script without telemetry besides its loss and epoch."""
    saved = run.checkpoint
    pairs = []
    if saved is not None and saved.size_bytes is not None:
        pairs.append(("ckpt size", format.bytes_text(saved.size_bytes)))
    if saved is not None and saved.took_s is not None:
        pairs.append(("ckpt time", format.duration(saved.took_s)))
    shown = ("epoch", "accuracy", *LOSS_NAMES)
    rest = [(name, value) for name, value in run.metrics.items() if name not in shown]
    named = [(one_line(name)[: LABEL_CELLS - 1], value) for name, value in rest[:REPORTED_SHOWN]]
    return pairs + [(name, format.reported(value)) for name, value in named]


def alarms(view_state: ViewState, most: int) -> Content | None:
    """The active alerts, most severe first; None when there are none."""
    raised = [
        view.alert
        for view in view_state.store.alerts.values()
        if view.acknowledged_s is None
        and (view.snoozed_until_s is None or view.snoozed_until_s <= view_state.now_s)
    ]
    raised.sort(key=lambda alert: (-_GRAVITY[alert.finding.severity], -alert.raised_s))
    if not raised:
        return None
    hangs = raised[0].finding.kind == "hang"
    lines = [
        Content.assemble(
            Content.styled("▲ ", f"${_SEVERITY_STYLES[alert.finding.severity]} bold"),
            Content.styled(
                one_line(alert.finding.what, 160), f"${_SEVERITY_STYLES[alert.finding.severity]}"
            ),
            Content.styled(f"  since {clock(alert.raised_s)}", "$muted"),
        )
        for alert in raised[: most - hangs]
    ]
    hidden = len(raised) - len(lines)
    if hangs:
        hint = f"  :hang shows the stacks of the ranks, {shown_key('all_logs')} all logs"
        lines.insert(1, Content.styled(hint, "$muted"))
    if hidden:
        lines.append(Content.styled(f"  {hidden} more ({NUMBERS['alerts']} shows all)", "$muted"))
    return Content("\n").join(lines)


_SEVERITY_STYLES = {
    Severity.CRITICAL: "bad",
    Severity.WARNING: "warning",
    Severity.INFO: "accent",
}
_GRAVITY = {severity: at for at, severity in enumerate(reversed(_SEVERITY_STYLES))}


def _phase(view_state: ViewState, run: RunView) -> Content | None:
    """The progress of a run that is starting or restarting."""
    if not run.phases or run.state.is_over:
        return None
    at_s, _, phase = run.phases[-1]
    if phase is Phase.RUNNING:
        return None
    since = format.age(age_s(at_s, view_state.now_s))
    return Content.styled(f"  {phase.value} for {since}", "$warning")


def _worked_out(view_state: ViewState, run: RunView, found: Diagnosis) -> list[tuple[str, str]]:
    pairs = []
    if found.goodput is not None and found.goodput.percent is not None:
        pairs.append(("goodput", format.percent(found.goodput.percent)))
    if found.eta is not None:
        left_s = max(0.0, found.eta.at_s + found.eta.left_s - view_state.now_s)
        pairs.append(("done in", format.age(left_s)))
    if found.at_risk is not None and not run.state.is_over:
        pairs.append(("unsaved", format.age(found.at_risk.seconds)))
    if found.shares is not None:
        pairs.append(("bound by", found.shares.largest))
    if found.cost is not None and found.cost.spent is not None:
        pairs.append(("cost", money(found.cost.spent, found.cost.currency)))
    return pairs


def _last_restart(run: RunView) -> Content | None:
    """Why the run ended, or what its newest end of an attempt was."""
    if run.state.is_over and run.message:
        style = "$muted" if run_style(run) == "good" else "$bad"
        return Content.styled(one_line(run.message, 160), style)
    if (last := last_failed_attempt(run)) is not None:
        going = run.attempt is not last
        ended, _, why = attempt_end(last.reason).partition(" ")
        return Content.assemble(
            Content.styled(f"attempt {last.number} {ended} ", "$muted" if going else "$warning"),
            Content.styled(why, "" if going else "$warning"),
        )
    return Content.styled(one_line(run.message, 160), "$bad") if run.message else None


def _cause(found: Cause) -> list[Content]:
    """The verdict on the newest end of an attempt, in a line; none where no cause is known."""
    if found.category is Category.UNKNOWN:
        return []
    stops = found.advice is Advice.STOP
    return [
        Content.assemble(
            Content.styled("cause: ", "$muted"),
            one_line(headline(found), 160),
            Content.styled(f" {found.advice.value}", "$bad" if stops else "$good"),
            Content.styled(f", confidence {found.confidence.value}", "$muted"),
        )
    ]


def outcome(view_state: ViewState, measured: Recovery, width: int) -> Content:
    """A drill in one line: its pending milestone, or its result."""
    drill = measured.drill
    fault = f"{drill.fault} of {drill.target}"
    if measured.recovered:
        text = f"✓ recovered in {format.duration(measured.first_step_s)}"
        if measured.steps_lost is not None:
            text += f", {format.plural(measured.steps_lost, 'step')} lost"
        more = [fault, f"at {clock(drill.injected_s)}"]
        if measured.resumed_step is not None:
            more.insert(0, f"resumed at step {measured.resumed_step:,}")
        return _as_fits(Content.styled(text, "$good"), more, width)
    if is_settled(view_state.store, measured):
        well = measured.interrupted is False
        text = f"{'✓' if well else '✗'} {brief(measured)}"
        return _as_fits(
            Content.styled(text, "$good" if well else "$bad"),
            [f"at {clock(drill.injected_s)}"],
            width,
        )
    since = format.duration(max(0.0, view_state.now_s - drill.injected_s))
    waits = Content.styled(f"◌ {_waiting_for(measured)} for {since}", "$warning")
    return _as_fits(waits, [fault, f"at {clock(drill.injected_s)}"], width)


def _as_fits(head: Content, more: Sequence[str], width: int) -> Content:
    """As many of the parts behind the head as there is room for."""
    for part in more:
        tail = Content.styled(f"  · {part}", "$muted")
        if head.cell_length + tail.cell_length > width:
            break
        head = Content.assemble(head, tail)
    return head


def _waiting_for(measured: Recovery) -> str:
    ends_a_pod = measured.drill.fault in ENDS_A_POD
    if ends_a_pod and measured.pod_gone_s is None and measured.detected_s is None:
        return "waiting for the pod to end"
    if is_open(measured):
        return "waiting for an effect on the run"
    if measured.detected_s is None:
        return "waiting for Ray to notice"
    if measured.restarted_s is None:
        return "waiting for the next attempt"
    return "waiting for its first step"


def _checkpoint(run: RunView, now_s: float) -> str:
    if run.checkpoint is None:
        return "none yet"
    return f"{format.age(age_s(run.checkpoint_s, now_s))} ago"


def _grid(pairs: Sequence[tuple[str, str]], style: str, broken: set[str]) -> list[Content]:
    """Two pairs a line: labels grey, values aligned; those of `broken` are highlighted."""
    lines = []
    for at in range(0, len(pairs), 2):
        cells = []
        for name, value in pairs[at : at + 2]:
            cells.append(Content.styled(f"{name:<{LABEL_CELLS}}", "$muted"))
            value_style = "bold $bad" if name in broken else style or "bold"
            cells.append(Content.styled(f"{value:<{LABEL_CELLS}}", value_style))
        lines.append(Content.assemble(*cells))
    return lines
