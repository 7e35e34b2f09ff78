"""What a run does now, in one sentence."""

from __future__ import annotations

import math
import time

from msgspec import Struct

from cockpit import format
from cockpit.insight.causes.types import Category, Cause
from cockpit.insight.hang.verdict import verdict
from cockpit.insight.metrics.stall import Stall
from cockpit.model.run import Phase, RunState
from cockpit.model.text import one_line
from cockpit.store.run import RunView
from cockpit.store.selectors import STALE_AFTER_S, only_reports, step_of

_PHASES = {
    Phase.SCHEDULING: "Waiting for resources",
    Phase.PLACEMENT_GROUP: "Reserving the resources of the ranks",
    Phase.ACTOR_START: "Starting the processes of the ranks",
    Phase.PROCESS_GROUP: "Forming the process group",
    Phase.RESTORE: "Restoring a checkpoint",
    Phase.FIRST_STEP: "Waiting for the first step",
    Phase.PREEMPTING: "Node preemption in progress",
    Phase.RESTARTING: "Restarting",
    Phase.RESIZING: "Resizing",
    Phase.SHUTTING_DOWN: "Shutting down",
}
LONGEST = 160


class LiveLine(Struct, frozen=True):
    text: str
    is_well: bool
    """Whether it trains, or has finished."""


def live_line(
    run: RunView,
    now_s: float,
    cause: Cause | None = None,
    stalled: Stall | None = None,
    *,
    brief: bool = False,
) -> LiveLine:
    """`cause` is the newest verdict on an attempt, `stalled` is `stall` of the same instant.

    `brief`: of a hang only the place of the ranks that the others wait for, if that is known.
    """
    if run.state.is_over:
        return _ended(run, cause)
    text, is_well = _now(run, now_s, stalled, brief)
    return LiveLine(f"{text}{_attempt(run, cause)}", is_well)


def _now(run: RunView, now_s: float, stalled: Stall | None, brief: bool) -> tuple[str, bool]:
    if stalled is not None:
        found, why = verdict(run, now_s), ""
        if found is not None and found.is_late:
            text = found.where if brief and found.where else found.sentence
            why = f": {text.rstrip('.')}"
        return f"No progress for {format.age(now_s - stalled.since_s)}{why}", False
    if run.phases and run.phases[-1][2] is not Phase.RUNNING:
        at_s, _, phase = run.phases[-1]
        return f"{_PHASES[phase]} for {format.age(max(0.0, now_s - at_s))}", False
    if run.state is not RunState.RUNNING:
        return run.state.value.replace("_", " ").capitalize(), False
    facts = [fact for fact in (_epoch(run), _step(run)) if fact]
    if run.world_size:
        facts.append(format.plural(run.world_size, "rank"))
    if (rate := run.curves["samples_per_s"].last) is not None:
        facts.append(f"{format.si(rate)} samples/s")
    newest = max((r.sample.at_s for r in run.ranks.values() if r.sample), default=None)
    if newest is not None and now_s - newest > STALE_AFTER_S and not only_reports(run):
        facts.append(f"no telemetry for {format.age(now_s - newest)}")
    return f"Training: {', '.join(facts) or 'no metrics yet'}", True


def _epoch(run: RunView) -> str:
    seen = [r.sample.epoch for r in run.ranks.values() if r.sample and r.sample.epoch is not None]
    epoch = max(seen, default=run.metrics.get("epoch"))
    return f"epoch {int(epoch)}" if epoch is not None and math.isfinite(epoch) else ""


def _step(run: RunView) -> str:
    step = step_of(run)
    return f"step {step:,}" if step is not None else ""


def _attempt(run: RunView, cause: Cause | None) -> str:
    """The attempt, if it is not the first, and why the newest one that failed did."""
    attempt, why = run.attempt, _why(run, cause)
    if attempt is None or (attempt.number == 1 and not why):
        return ""
    if attempt.ended_s is not None:
        text = f"; attempt {attempt.number} ended at {_clock(attempt.ended_s)}"
    elif attempt.started_s is not None:
        text = f"; attempt {attempt.number} since {_clock(attempt.started_s)}"
    else:
        text = f"; attempt {attempt.number}"
    return f"{text} ({why})" if why else text


def _why(run: RunView, cause: Cause | None) -> str:
    """The verdict, else the reported reason of the newest attempt that failed."""
    if cause is not None and cause.run_id == run.id and cause.category is not Category.UNKNOWN:
        sentence = one_line(cause.sentence.rstrip("."), LONGEST)
        inside = sentence.startswith(("Rank", "Pod ", "The "))
        return sentence[0].lower() + sentence[1:] if inside else sentence
    failed = [each.reason for _, each in sorted(run.attempts.items()) if each.reason]
    ended = [reason for reason in failed if reason != "finished"]
    return one_line(ended[-1], LONGEST) if ended else ""


def _ended(run: RunView, cause: Cause | None) -> LiveLine:
    words = {RunState.FINISHED: "Finished", RunState.ERRORED: "Failed"}
    text = words.get(run.state, "Aborted")
    if run.ended_s is not None:
        text += f" at {_clock(run.ended_s)}"
    if len(run.attempts) > 1:
        text += f" after {format.plural(len(run.attempts), 'attempt')}"
    is_well = run.state is RunState.FINISHED
    if not is_well and (why := _why(run, cause) or one_line(run.message, LONGEST)):
        return LiveLine(f"{text}: {why}", is_well)
    facts = [fact for fact in (_epoch(run), _step(run)) if fact]
    return LiveLine(f"{text}: {', '.join(facts)}" if facts else text, is_well)


def _clock(at_s: float) -> str:
    return time.strftime("%H:%M", time.localtime(at_s))
