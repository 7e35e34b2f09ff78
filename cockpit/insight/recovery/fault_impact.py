"""Which attempt a fault hit, which one it led to, and whether it interrupted the run.

The affected attempt is the one that runs at the injection, or the one that starts then: the restart
after an earlier fault belongs to that fault. The next attempt with a step belongs to the recovery.

A fault that ends no attempt is over for the run once, after its own end, nothing is wrong any more
and the throughput is back for 15 s: no state but RUNNING, all pods of its ranks ready, current data
of all ranks. For a run that stays slower, a minute without any other problem is enough. An attempt
that ends later ended for another reason.
"""

from __future__ import annotations

import math

from msgspec import Struct

from cockpit.insight.recovery.pace import CHECK_EVERY_S, Pace, back_s, stalls
from cockpit.insight.recovery.replacement_pods import ReplacementPods, gone_s
from cockpit.model.drill import Drill, Stage
from cockpit.model.run import Phase, RunState
from cockpit.store.run import AttemptView, RunView
from cockpit.store.store import Store

QUIET_S = 15.0
QUIET_BLIND_S = 60.0
"""For a run that reports no steps, or does not regain its throughput."""
CONTROLLER = "telemetry: controller"
RANKS = "telemetry: ranks"
RANKS_LOOKED_AT = 64
_WELL = (RunState.RUNNING, RunState.UNKNOWN)


class Trouble(Struct, frozen=True):
    """Something is not as before; Unix seconds, infinity for what has no end yet."""

    began_s: float
    ended_s: float
    source: str
    hurts: bool = True
    """The run is not well while it lasts."""


class FaultImpact(Struct, frozen=True):
    hit: AttemptView | None
    new: AttemptView | None
    """The first later attempt with a step, else the newest later one."""
    over_s: float | None
    """When the fault had ended; None while it lasts."""
    interrupted: bool | None
    back_s: float | None
    """Of a fault that did not interrupt: since when the throughput is back."""
    troubles: tuple[Trouble, ...]


def fault_impact(
    store: Store, run: RunView, drill: Drill, pace: Pace, hit: int, pods: ReplacementPods
) -> FaultImpact:
    attempt = run.attempts.get(hit)
    over = over_s(store, drill)
    found = tuple(_troubles(store, run, drill, pace, attempt, pods))
    until = min(next_fault_s(store, drill, drill.injected_s), last_update_s(store, run))
    ended = attempt.ended_s if attempt is not None else None
    back = clear = None
    if over is not None and attempt is not None:
        back, clear = _clear_s(run, pace, attempt, over, until, found)
    if clear is not None and (ended is None or clear <= ended):
        return FaultImpact(attempt, None, over, False, back, found)
    if ended is not None and attempt is not None and not _cost_nothing(attempt):
        return FaultImpact(attempt, _next(run, hit), over, True, None, found)
    finished = ended is not None or (run.state is RunState.FINISHED and over is not None)
    return FaultImpact(attempt, None, over, False if finished else None, None, found)


def hit_attempt(run: RunView, drill: Drill) -> int:
    """The attempt that ran at the injection, or the next one."""
    number = drill.attempt
    while (view := run.attempts.get(number)) is not None:
        if view.ended_s is None or view.ended_s >= drill.injected_s:
            break
        number += 1
    return number


def over_s(store: Store, drill: Drill) -> float | None:
    """When the fault ended: at once, unless the engine reports its duration."""
    view = store.drilling.get(drill.id.partition(".")[0])
    if view is None or is_part(drill):
        return drill.injected_s
    after = (Stage.RECOVERING, Stage.AFTER, Stage.ENDED)
    lasted = any(stage in (Stage.DURING, Stage.UNDOING) for stage, _ in view.stages)
    ended = next((at_s for stage, at_s in view.stages if stage in after), None)
    if lasted or view.stage in (Stage.DURING, Stage.UNDOING):
        return None if ended is None else max(ended, drill.injected_s)
    return drill.injected_s


def is_part(drill: Drill) -> bool:
    """One of the many kills that a lasting fault injects: `drill-ab12.1.2`."""
    return drill.id.count(".") > 1


def next_fault_s(store: Store, drill: Drill, since_s: float) -> float:
    """When the next drill hit the same run, later than `since_s`; those at once are one."""
    together = _together(drill)
    later = [
        other.injected_s
        for other in store.drills
        if other.run_id == drill.run_id
        and other.injected_s > since_s
        and (not together or _together(other) != together)
        and other.id != drill.id
    ]
    return min(later, default=math.inf)


def last_update_s(store: Store, run: RunView) -> float:
    """Until when it is known what the run does."""
    times = run.progress.times
    state = store.sources.get("telemetry")
    reported = state.ok_s if state is not None and state.ok and state.ok_s is not None else 0.0
    return max(times[-1] if times else 0.0, reported, run.ended_s or 0.0)


def first_step_s(run: RunView, attempt: AttemptView) -> float | None:
    """The end of its first new step, or for a run without steps, its first report.

    The stream reports it as the phase `running` of the first rank.
    """
    reported = [at_s for at_s, number, phase in run.phases if (number, phase) == _runs(attempt)]
    moments = (min(reported, default=None), attempt.first_step_s)
    return min((at_s for at_s in moments if at_s is not None), default=attempt.reported_s)


def _runs(attempt: AttemptView) -> tuple[int, Phase]:
    return attempt.number, Phase.RUNNING


def _together(drill: Drill) -> str:
    """The record's id, for faults that were injected at once."""
    record, _, rest = drill.id.partition(".")
    return record if rest and not is_part(drill) else ""


def _cost_nothing(attempt: AttemptView) -> bool:
    """It finished."""
    return attempt.reason in ("", "finished") and attempt.budget in ("", "none")


def _next(run: RunView, hit: int) -> AttemptView | None:
    later = [run.attempts[number] for number in sorted(run.attempts) if number > hit]
    stepped = (view for view in later if first_step_s(run, view) is not None)
    return next(stepped, later[-1] if later else None)


def _clear_s(
    run: RunView,
    pace: Pace,
    attempt: AttemptView,
    over: float,
    until: float,
    found: tuple[Trouble, ...],
) -> tuple[float | None, float | None]:
    """Since when the throughput is back permanently, and when the recovery was certain."""
    hurts = [trouble for trouble in found if trouble.hurts]
    begun_s = first_step_s(run, attempt)
    if begun_s is None:
        return None, None
    since_s = max(over, begun_s)
    at_s: float | None = since_s
    while pace.rate is not None and at_s is not None:
        at_s = back_s(run, pace, at_s, until)
        quiet_s = None if at_s is None else _quiet_s(hurts, at_s, QUIET_S, until)
        if at_s is not None and quiet_s == at_s:
            return at_s, at_s + QUIET_S
        at_s = quiet_s
    well_s = _quiet_s(hurts, since_s, QUIET_BLIND_S, until)
    if well_s is None:
        return None, None
    return (well_s if pace.rate is None else None), well_s + QUIET_BLIND_S


def _quiet_s(hurts: list[Trouble], since_s: float, quiet_s: float, until: float) -> float | None:
    """From when on nothing was wrong for so long; None while that is not known."""
    at_s = since_s
    while at_s + quiet_s <= until:
        bad = [t.ended_s for t in hurts if t.began_s < at_s + quiet_s and t.ended_s > at_s]
        if not bad:
            return at_s
        at_s = max(bad)
    return None


def _troubles(
    store: Store,
    run: RunView,
    drill: Drill,
    pace: Pace,
    attempt: AttemptView | None,
    pods: ReplacementPods,
) -> list[Trouble]:
    since_s = drill.injected_s
    found: list[Trouble] = []
    placements = attempt.placements if attempt is not None else ()
    on = {placement.node_ip for placement in placements}
    for pod in pods.hit:
        # A rank without which an attempt was made after the fault is not missing.
        has_rank = bool(drill.ranks) and (not on or not pod.ip or pod.ip in on)
        left_s = pod.left_s(since_s)
        if left_s is None and pod.removed_s is not None and pod.removed_s >= since_s:
            left_s = pod.removed_s
        if left_s is not None:
            again_s = None if pod.removed_s is not None else pod.ready_s(left_s)
            ended_s = math.inf if again_s is None else again_s
            removed_s = gone_s(pod, since_s)
            began_s = left_s if removed_s is None else min(left_s, removed_s)
            found.append(Trouble(began_s, ended_s, "backend", has_rank))
    if attempt is None:
        return found
    placed = {p.rank: p for p in placements}
    nodes = {placed[rank].node_id for rank in drill.ranks if rank in placed}
    ips = {pod.ip for pod in pods.hit if pod.ip}
    found += [
        Trouble(death.at_s, math.inf, "ray", hurts=death.id in nodes)
        for death in store.past.deaths
        if death.at_s >= since_s and (death.id in nodes or death.ip in ips)
    ]
    begun_s = max(since_s, attempt.started_s or since_s)
    for at, (at_s, state) in enumerate(run.states):
        if at_s >= begun_s and state not in _WELL and not _finishes(run, at):
            again = (s for s, later in run.states[at:] if later in _WELL)
            found.append(Trouble(at_s, next(again, math.inf), CONTROLLER))
    if attempt.first_step_s is not None:
        found += _silences(store, run, drill, pace, attempt, begun_s)
    return found


def _finishes(run: RunView, at: int) -> bool:
    """The state is that of an intended end."""
    return run.state is RunState.FINISHED and all(
        state in (RunState.SHUTTING_DOWN, RunState.FINISHED) for _, state in run.states[at:]
    )


def _silences(
    store: Store, run: RunView, drill: Drill, pace: Pace, attempt: AttemptView, since_s: float
) -> list[Trouble]:
    """Of the complete run, and of each rank that was hit."""
    until = since_s + CHECK_EVERY_S
    if attempt.ended_s is not None:
        until = min(until, attempt.ended_s)
    limit, last_updates = pace.stall_s, last_update_s(store, run)
    since = max(since_s, attempt.first_step_s or since_s)
    curves = [(RANKS, run.progress)]
    for rank in drill.ranks[:RANKS_LOOKED_AT]:
        if (view := run.ranks.get(rank)) is not None and view.sample is not None:
            curves.append((f"telemetry: rank {rank}", view.curves["step_time_s"]))
    return [
        Trouble(before + limit, after, source)
        for source, series in curves
        for before, after in stalls(series.times, since, until, last_updates, limit)
    ]
