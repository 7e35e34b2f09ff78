"""Measure how a run recovered from a drill, from the events only.

    seconds lost      interrupted: caught up - last step of the old attempt (minus one step when
                      none was repeated); slowed only: W - steps done in W * usual wall time of a
                      step,
                      W: from the injection to throughput back
    GPU-seconds lost  seconds lost * GPUs of the attempt that was hit
    goodput           (window - seconds lost) / window, from the injection to the last milestone
    restarts          attempts that ended, from the one that was hit to the one that stepped again

`milestones.py` has the instants, `fault_impact.py` which attempts are a drill's, `pace.py` and
`continuity.py` the throughput and the loss.
"""

from __future__ import annotations

import math

from msgspec import Struct

from cockpit.insight.metrics.robust_statistics import finite, median
from cockpit.insight.recovery.fault_impact import (
    FaultImpact,
    fault_impact,
    first_step_s,
    hit_attempt,
    is_part,
    next_fault_s,
    over_s,
)
from cockpit.insight.recovery.loss_continuity import continuity
from cockpit.insight.recovery.milestones import last_step_before, of_pods, of_run, on_one_clock
from cockpit.insight.recovery.missing_data import cut_short, gaps, unreported
from cockpit.insight.recovery.pace import Pace, pace_before, step_at
from cockpit.insight.recovery.replacement_pods import ReplacementPods, pods_back
from cockpit.model.drill import Continuity, Drill, Instant, Milestone, Recovery
from cockpit.model.run import RunState
from cockpit.store.run import RunView
from cockpit.store.selectors import retried_job
from cockpit.store.store import Store

PATIENCE_S = 60.0
"""How long an optional milestone is waited for after the previous one."""


class Reading(Struct, frozen=True):
    """The state of the run just before the fault, to which its recovery is compared."""

    at_s: float = 0.0
    samples_per_s: float | None = None
    """The median over the last half minute, of all ranks."""
    loss: tuple[float, ...] = ()
    """The newest losses, the last one newest."""
    ready: int = 0
    """Worker pods that were ready."""
    attempt: int = 0
    """The attempt that ran, or the next one; 0: not known."""


def baseline(store: Store, run_id: str) -> Reading:
    """The reading of this moment."""
    run = store.runs.get(run_id)
    ready = store.ready_counts[-1][1] if store.ready_counts else 0
    if run is None:
        return Reading(ready=ready)
    loss = run.curves["loss"]
    at_s = loss.times[-1] if len(loss) else 0.0
    throughput = finite([v for t, v in run.curves["samples_per_s"] if t >= at_s - 30.0])
    newest = run.attempt
    return Reading(
        at_s,
        median(throughput) if throughput else None,
        tuple(loss.values[-50:]),
        ready,
        0 if newest is None else newest.number + (newest.ended_s is not None),
    )


def is_complete(store: Store, drill: Drill, before: Reading, now_s: float) -> bool:
    """Whether the recovery is complete, or its optional milestones have timed out."""
    measured = recovery(store, drill, before)
    over = over_s(store, drill)
    if over is None:
        return False
    newest_s = max(i.after_s for i in measured.instants)
    waited_s = now_s - max(drill.injected_s + newest_s, over)
    pods = pods_back(store, drill)
    run = store.runs.get(drill.run_id)
    if run is None:
        if not drill.run_id:
            return measured.pod_ready_s is not None or (not pods.waits and waited_s > PATIENCE_S)
        return False
    if run.state.is_over and retried_job(store, run) is None:
        # A lost driver may be restarted, and continue this run.
        return not _lost_its_driver(run) or waited_s > PATIENCE_S
    if measured.interrupted is None or (measured.interrupted and not measured.recovered):
        return False
    if not pods.waits and not _may_come(run, measured, before):
        return True
    return waited_s > PATIENCE_S + 2.0 * _catching_up_s(run, drill, measured)


def recovery(store: Store, drill: Drill, before: Reading | None = None) -> Recovery:
    """The timeline of the drill so far, in seconds since the injection.

    Without a reading of then, what the store still has of that time is compared with.
    """
    pods = pods_back(store, drill)
    seen = of_pods(drill, pods)
    run = store.runs.get(drill.run_id)
    if run is None:
        instants, notes = on_one_clock(seen, drill)
        return Recovery(
            drill,
            pod_gone_s=_pod_ended_s(store, drill, pods),
            pod_ready_s=_pod_ready_s(store, drill, pods, instants),
            instants=instants,
            missing_data=(*gaps(store, drill, instants), *notes),
        )
    pace = pace_before(run, drill.injected_s, before.samples_per_s if before else None)
    number = hit_attempt(run, drill)
    if before is not None and before.attempt and not is_part(drill):
        number = before.attempt  # a part has the reading of the complete fault, from before it
    impact = fault_impact(store, run, drill, pace, number, pods)
    until_s = next_fault_s(store, drill, drill.injected_s)
    seen |= of_run(store, run, drill, pace, impact, until_s)
    instants, notes = on_one_clock(seen, drill)
    hit, new = impact.hit, impact.new
    last = last_step_before(run, hit) if hit is not None and impact.interrupted else None
    lost_s = _seconds_lost(run, drill, pace, impact, instants)
    gpus = sum(len(placed.gpus) for placed in hit.placements) if hit is not None else 0
    ended = _ended(run, impact)
    return Recovery(
        drill=drill,
        pod_gone_s=_pod_ended_s(store, drill, pods),
        detected_s=_detected_s(impact, drill, instants),
        attempt_ended_s=_of(instants, Milestone.ATTEMPT_ENDED),
        pod_ready_s=_pod_ready_s(store, drill, pods, instants),
        restarted_s=_of(instants, Milestone.WORKERS_STARTED),
        first_step_s=_of(instants, Milestone.FIRST_STEP),
        resumed_step=new.first_step if new is not None else None,
        last_step=last[0] if last is not None else None,
        reason=hit.reason if hit is not None and impact.interrupted else "",
        instants=instants,
        interrupted=impact.interrupted,
        seconds_lost=lost_s,
        gpu_seconds_lost=None if lost_s is None or not gpus else round(lost_s * gpus, 3),
        goodput_percent=_goodput(instants, lost_s),
        continuity=_continuity(store, run, drill, impact, before),
        restarts=len(ended),
        budget="+".join(dict.fromkeys(budget for budget in ended if budget)),
        ranks_before=len(hit.placements) or None if hit is not None else None,
        ranks_after=len(new.placements) or None if new is not None else None,
        missing_data=(
            *gaps(store, drill, instants),
            *unreported(run, pace, impact),
            *notes,
            *cut_short(store, drill, instants),
        ),
    )


def is_settled(store: Store, measured: Recovery) -> bool:
    """Whether it is decided: the run made a new step, was not interrupted, or is over."""
    run = store.runs.get(measured.drill.run_id)
    decided = measured.recovered or measured.interrupted is False
    if decided or run is None:
        return decided
    return run.state.is_over and retried_job(store, run) is None


def _of(instants: tuple[Instant, ...], milestone: Milestone) -> float | None:
    return next((i.after_s for i in instants if i.milestone is milestone), None)


def _pod_ended_s(store: Store, drill: Drill, pods: ReplacementPods) -> float | None:
    at_s = pods.removed_s if pods.hit else store.removed_pods.get(drill.target)
    return None if at_s is None else round(at_s - drill.injected_s, 3)


def _detected_s(impact: FaultImpact, drill: Drill, instants: tuple[Instant, ...]) -> float | None:
    """By Ray Train; the death of a node is Ray's own."""
    left = [t.began_s for t in impact.troubles if t.source.startswith("telemetry: c")]
    if (ended_s := _of(instants, Milestone.ATTEMPT_ENDED)) is not None:
        left.append(drill.injected_s + ended_s)
    return round(max(0.0, min(left) - drill.injected_s), 3) if left else None


def _pod_ready_s(
    store: Store, drill: Drill, pods: ReplacementPods, instants: tuple[Instant, ...]
) -> float | None:
    """Of pods that were never listed: when as many workers were ready as before."""
    if pods.hit:
        return _of(instants, Milestone.POD_READY)
    counts = list(store.ready_counts)
    before = [count for at_s, count in counts if at_s <= drill.injected_s]
    if not before:
        return None
    fell = False
    for at_s, count in counts:
        if at_s > drill.injected_s:
            fell = fell or count < before[-1]
            if fell and count >= before[-1]:
                return round(at_s - drill.injected_s, 3)
    return None


def _seconds_lost(
    run: RunView, drill: Drill, pace: Pace, impact: FaultImpact, instants: tuple[Instant, ...]
) -> float | None:
    if impact.interrupted and impact.hit is not None and impact.new is not None:
        caught_up_s = _of(instants, Milestone.CAUGHT_UP)
        last = last_step_before(run, impact.hit)
        if caught_up_s is None or last is None or impact.new.first_step is None:
            return None
        stopped_s = max(0.0, last[1] - drill.injected_s)
        again = impact.new.first_step <= last[0]
        return round(max(0.0, caught_up_s - stopped_s - (0.0 if again else pace.step_s or 0.0)), 3)
    back_s = _of(instants, Milestone.THROUGHPUT_BACK)
    if back_s is None or pace.step_s is None:
        return None
    first = step_at(run, drill.injected_s)
    last_step = step_at(run, drill.injected_s + back_s)
    if first is None or last_step is None:
        return None
    return round(max(0.0, back_s - (last_step - first) * pace.step_s), 3)


def _goodput(instants: tuple[Instant, ...], lost_s: float | None) -> float | None:
    window_s = max((i.after_s for i in instants), default=0.0)
    if lost_s is None or window_s <= 0:
        return None
    return round(100.0 * max(0.0, window_s - lost_s) / window_s, 1)


def _continuity(
    store: Store, run: RunView, drill: Drill, impact: FaultImpact, before: Reading | None
) -> Continuity | None:
    losses = before.loss if before is not None else ()
    if impact.interrupted is False:
        if impact.back_s is None:
            return None
        return continuity(run, drill.injected_s, impact.back_s, math.inf, losses)
    if (
        impact.hit is None
        or impact.new is None
        or (last := last_step_before(run, impact.hit)) is None
    ):
        return None
    if (first_s := first_step_s(run, impact.new)) is None:
        return None
    until_s = min(
        next_fault_s(store, drill, first_s),
        impact.new.ended_s if impact.new.ended_s is not None else math.inf,
    )
    return continuity(run, last[1], first_s, until_s, losses)


def _ended(run: RunView, impact: FaultImpact) -> list[str]:
    """What each ended attempt counts against, from the one that was hit; empty: not reported."""
    if impact.hit is None or not impact.interrupted:
        return []
    until = impact.new.number if impact.new is not None else max(run.attempts) + 1
    numbers = sorted(number for number in run.attempts if impact.hit.number <= number < until)
    views = (run.attempts[number] for number in numbers)
    return [v.budget for v in views if v.ended_s is not None and v.budget != "none"]


def _lost_its_driver(run: RunView) -> bool:
    """Its job ended, and the run did not report its end."""
    attempt = run.attempt
    return (
        attempt is not None
        and attempt.reason.startswith("job ")
        and run.state not in (RunState.FINISHED,)
    )


def _may_come(run: RunView, measured: Recovery, before: Reading) -> bool:
    """Whether a milestone of the run is still pending."""
    reached = {instant.milestone for instant in measured.instants}
    lost = measured.interrupted and measured.last_step is not None and len(run.progress)
    if lost and Milestone.CAUGHT_UP not in reached:
        return True
    knows = pace_before(run, measured.drill.injected_s, before.samples_per_s).rate is not None
    return knows and Milestone.THROUGHPUT_BACK not in reached


def _catching_up_s(run: RunView, drill: Drill, measured: Recovery) -> float:
    """How long the lost steps take, at the usual pace, when they are not done again yet."""
    if measured.reached(Milestone.CAUGHT_UP) is not None:
        return 0.0
    return (measured.steps_lost or 0) * (pace_before(run, drill.injected_s).step_s or 0.0)
