"""The Overview's sentences: the cluster, the run, its recovery."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from cockpit.insight.recovery import is_settled
from cockpit.model.drill import Recovery
from cockpit.model.text import one_line
from cockpit.store.run import RunView
from cockpit.store.select import STALE_AFTER_S, age_s, stale_sources
from cockpit.tui import format
from cockpit.tui.look import Look
from cockpit.tui.sentences import HEALTH_STYLES, clock, recovered, run_style, silent

LABEL_CELLS = 11


def health(look: Look) -> Content:
    """One line on the cluster, and one on each source that is behind."""
    store = look.store
    if store.ref is None:
        return Content.styled("Waiting for the cluster's first word …", "$muted")
    words = [Content.styled(f"● {store.health.value}", f"${HEALTH_STYLES[store.health]} bold")]
    if store.ray_version:
        words.append(Content.styled(f"  Ray {store.ray_version}", "$muted"))
    alive = [node for node in store.nodes.values() if node.alive]
    if alive:
        nodes = "node" if len(alive) == 1 else "nodes"
        words.append(Content.styled(f"  {len(alive)} {nodes}", "$muted"))
    if store.health_message:
        words.append(Content.styled(f"\n{store.health_message}", "$muted"))
    for name, age, why in stale_sources(store, look.now_s):
        words.append(Content.styled(f"\n⚠ {silent(name, age, one_line(why, 80))}", "$warning"))
    return Content.assemble(*words)


def facts(look: Look, run: RunView | None) -> Content:
    """The run in a few lines; numbers are grey once they are old."""
    if run is None:
        jobs = [job for job in look.store.jobs.values() if not job.status.is_over]
        what = "its first report" if jobs else "a job (L launches one)"
        return Content.styled(f"No run yet: waiting for {what}.", "$muted")
    attempt = run.attempt
    state = [Content.styled(run.state.value, f"bold ${run_style(run.state)}")]
    if attempt is not None:
        state.append(Content(f"  attempt {attempt.number}"))
    if run.world_size:
        ranks = "rank" if run.world_size == 1 else "ranks"
        state.append(Content.styled(f"  {run.world_size} {ranks}", "$muted"))
    lines = [Content.assemble(*state)]
    heard = max((r.sample.at_s for r in run.ranks.values() if r.sample), default=None)
    age = age_s(heard, look.now_s)
    fresh = age is not None and age <= STALE_AFTER_S
    style = "" if fresh or run.state.is_over else "$muted"
    accuracy = run.metrics.get("accuracy")
    epoch = max(
        (r.sample.epoch for r in run.ranks.values() if r.sample and r.sample.epoch is not None),
        default=run.metrics.get("epoch"),
    )
    last_loss = run.loss.last if run.loss.last is not None else run.metrics.get("loss")
    pairs = [
        ("step", format.count(run.step)),
        ("epoch", format.number(epoch, 3)),
        ("loss", format.number(last_loss)),
        ("accuracy", format.percent(None if accuracy is None else 100 * accuracy)),
        ("samples/s", format.si(run.samples_per_s.last)),
        ("checkpoint", _checkpoint(run, look.now_s)),
    ]
    if accuracy is None:
        pairs = [pair for pair in pairs if pair[0] != "accuracy"]
    lines += _grid(pairs, style)
    if not fresh and not run.state.is_over:
        waits = f"last sample {format.age(age)} ago" if age is not None else "no sample yet"
        lines.append(Content.styled(f"{waits}: waiting for the ranks", "$warning"))
    if run.message:
        lines.append(Content.styled(one_line(run.message, 160), "$bad"))
    elif why := _last_reason(run):
        lines.append(Content.assemble(Content.styled("restarted  ", "$muted"), why))
    return Content("\n").join(lines)


def outcome(look: Look, measured: Recovery, width: int) -> Content:
    """A drill in one line: what is waited for, or how it went."""
    drill = measured.drill
    if is_settled(look.store.runs.get(drill.run_id), measured):
        mark, style = ("✓", "$good") if measured.recovered else ("✗", "$bad")
        head = Content.styled(f"{mark} {recovered(measured)}", style)
        at = Content.styled(f"  at {clock(drill.injected_s)}", "$muted")
        return Content.assemble(head, at) if head.cell_length + at.cell_length <= width else head
    since = format.duration(max(0.0, look.now_s - drill.injected_s))
    return Content.assemble(
        Content.styled(f"◌ {drill.fault} of {drill.target}", "$warning"),
        Content.styled(f"  {since} ago · {_waiting_for(measured)}", "$muted"),
    )


def _waiting_for(measured: Recovery) -> str:
    if measured.pod_gone_s is None and measured.detected_s is None:
        return "waiting for the pod to go"
    if measured.detected_s is None:
        return "waiting for Ray to notice"
    if measured.restarted_s is None:
        return "waiting for the next attempt"
    return "waiting for its first step"


def _checkpoint(run: RunView, now_s: float) -> str:
    if run.checkpoint is None:
        return "none yet"
    return f"{format.age(age_s(run.checkpoint_s, now_s))} ago"


def _last_reason(run: RunView) -> str:
    for number in sorted(run.attempts, reverse=True):
        if reason := run.attempts[number].reason:
            return one_line(reason, 160)
    return ""


def _grid(pairs: Sequence[tuple[str, str]], style: str) -> list[Content]:
    """Two pairs a line: labels grey, values aligned."""
    lines = []
    for at in range(0, len(pairs), 2):
        cells = []
        for name, value in pairs[at : at + 2]:
            cells.append(Content.styled(f"{name:<{LABEL_CELLS}}", "$muted"))
            cells.append(Content.styled(f"{value:<{LABEL_CELLS}}", style or "bold"))
        lines.append(Content.assemble(*cells))
    return lines
