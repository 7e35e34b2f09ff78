"""The milestones of a recovery with their sources, on one clock as far as possible.

The clock of each source: `user` and `ray` (polled) that of this host; `backend` that of this host,
of a local cluster its operator's; `telemetry: controller` that of the node of the run's driver;
`telemetry: ranks` and `telemetry: rank 1` those of the ranks' nodes. Clocks differ: an effect that
seems to precede its cause is set to the time of the cause, with a note. Only the last step of the
old attempt may be before the injection.
"""

from __future__ import annotations

from msgspec import Struct

from cockpit.format import in_seconds
from cockpit.insight.recovery.fault_impact import (
    CONTROLLER,
    RANKS,
    FaultImpact,
    Trouble,
    first_step_s,
    next_fault_s,
)
from cockpit.insight.recovery.pace import CHECK_EVERY_S, Pace, back_s, below_s, reached_s
from cockpit.insight.recovery.replacement_pods import ReplacementPods
from cockpit.model.drill import Drill, Instant, Milestone
from cockpit.model.run import Phase
from cockpit.store.run import AttemptView, RunView
from cockpit.store.store import Store

M = Milestone
CAUSES: tuple[tuple[Milestone, Milestone], ...] = (
    *((M.INJECTED, later) for later in M if later not in (M.INJECTED, M.STOPPED)),
    (M.ATTEMPT_ENDED, M.WORKERS_STARTED),
    (M.WORKERS_STARTED, M.PROCESS_GROUP),
    (M.PROCESS_GROUP, M.RESTORED),
    (M.ATTEMPT_ENDED, M.FIRST_STEP),
    (M.WORKERS_STARTED, M.FIRST_STEP),
    (M.PROCESS_GROUP, M.FIRST_STEP),
    (M.RESTORED, M.FIRST_STEP),
    (M.FIRST_STEP, M.CAUGHT_UP),
    (M.FIRST_STEP, M.THROUGHPUT_BACK),
    (M.POD_REPLACED, M.POD_READY),
)
"""(cause, effect), each cause's own cause before it."""
CLOCK_TOLERANCE_S = 0.05
"""Smaller differences between two clocks are not noted."""


class Seen(Struct, frozen=True):
    """A milestone in Unix seconds, by the clock of its source."""

    at_s: float
    source: str


def of_pods(drill: Drill, pods: ReplacementPods) -> dict[Milestone, Seen]:
    found = {M.INJECTED: Seen(drill.injected_s, "user")}
    if pods.replaced_s is not None:
        found[M.POD_REPLACED] = Seen(pods.replaced_s, "backend")
    if pods.ready_s is not None:
        found[M.POD_READY] = Seen(pods.ready_s, "backend")
    return found


def of_run(
    store: Store, run: RunView, drill: Drill, pace: Pace, impact: FaultImpact, until_s: float
) -> dict[Milestone, Seen]:
    """All but those of the pods."""
    found: dict[Milestone, Seen] = {}
    hit, new = impact.hit, impact.new
    interrupted = impact.interrupted is True
    ended_s = hit.ended_s if hit is not None and interrupted else None
    if ended_s is not None:
        found[M.ATTEMPT_ENDED] = Seen(ended_s, run_source(run))
    noticed = [Seen(t.began_s, _of(t, run)) for t in impact.troubles if t.source in _RAY]
    if ended_s is not None:
        noticed.append(Seen(ended_s, run_source(run)))
    if noticed:
        found[M.DETECTED] = min(noticed, key=lambda seen: seen.at_s)
    signs = [Seen(t.began_s, _of(t, run)) for t in impact.troubles] + noticed
    slow_until_s = min(until_s, ended_s if ended_s is not None else until_s)
    if (slow_s := below_s(run, pace, drill.injected_s, slow_until_s)) is not None:
        signs.append(Seen(slow_s, RANKS))
    if signs:
        found[M.SYMPTOM] = min(signs, key=lambda seen: seen.at_s)
    if (stopped := _stopped(impact, pace)) is not None:
        found[M.STOPPED] = stopped
    if impact.back_s is not None:
        found[M.THROUGHPUT_BACK] = Seen(impact.back_s, RANKS)
    if interrupted and hit is not None and new is not None:
        found |= _of_new(store, run, drill, pace, hit, new)
    return found


def run_source(run: RunView) -> str:
    """The source of the run's states and attempts."""
    return CONTROLLER if run.phases or run.samples_seen or run.reported_s else "train"


def on_one_clock(
    seen: dict[Milestone, Seen], drill: Drill
) -> tuple[tuple[Instant, ...], tuple[str, ...]]:
    """The instants in order of time, and what was set right for it, a line each."""
    after = {milestone: one.at_s - drill.injected_s for milestone, one in seen.items()}
    notes: list[str] = []
    for cause, effect in CAUSES:
        if cause not in after or effect not in after or after[effect] >= after[cause]:
            continue
        early_s = after[cause] - after[effect]
        after[effect] = after[cause]
        if early_s >= CLOCK_TOLERANCE_S:
            notes.append(
                f"{effect.value}: {in_seconds(early_s, 1)} before {cause.value} by the clock of "
                f"{seen[effect].source}; shown at the same time"
            )
    order = {milestone: at for at, milestone in enumerate(Milestone)}
    instants = [Instant(m, round(after[m], 3), one.source) for m, one in seen.items()]
    instants.sort(key=lambda instant: (instant.after_s, order[instant.milestone]))
    return tuple(instants), tuple(notes)


def last_step_before(run: RunView, hit: AttemptView) -> tuple[int, float] | None:
    """The last step of the attempt, or of the ones before it when it made none, with its time."""
    for number in sorted(run.attempts, reverse=True):
        view = run.attempts[number]
        if number <= hit.number and view.last_step is not None and view.last_step_s is not None:
            return view.last_step, view.last_step_s
    return None


_RAY = (CONTROLLER, "ray")


def _of(trouble: Trouble, run: RunView) -> str:
    return run_source(run) if trouble.source == CONTROLLER else trouble.source


def _stopped(impact: FaultImpact, pace: Pace) -> Seen | None:
    """The last step before the attempt's end; of an active one, before it stopped."""
    if impact.hit is None:
        return None
    if impact.interrupted:
        at_s = impact.hit.last_step_s
        return None if at_s is None else Seen(at_s, RANKS)
    stood = [t.began_s - pace.stall_s for t in impact.troubles if t.source == RANKS]
    return Seen(min(stood), RANKS) if stood else None


def _of_new(
    store: Store, run: RunView, drill: Drill, pace: Pace, hit: AttemptView, new: AttemptView
) -> dict[Milestone, Seen]:
    found: dict[Milestone, Seen] = {}
    if new.started_s is not None:
        found[M.WORKERS_STARTED] = Seen(new.started_s, run_source(run))
    if (at_s := _phase_ended_s(run, new, Phase.PROCESS_GROUP)) is not None:
        found[M.PROCESS_GROUP] = Seen(at_s, CONTROLLER)
    if (at_s := _phase_ended_s(run, new, Phase.RESTORE)) is not None:
        found[M.RESTORED] = Seen(at_s, "telemetry: rank 0")
    first_s = first_step_s(run, new)
    if first_s is None:
        return found
    found[M.FIRST_STEP] = Seen(first_s, RANKS if new.first_step is not None else CONTROLLER)
    until_s = next_fault_s(store, drill, first_s)
    last = last_step_before(run, hit)
    if last is not None and new.first_step is not None:
        at_s = reached_s(run, last[0], (first_s, new.first_step), until_s)
        if at_s is not None:
            found[M.CAUGHT_UP] = Seen(at_s, RANKS)
    before = len(hit.placements)
    for view in (run.attempts[n] for n in sorted(run.attempts) if n >= new.number):
        begun_s = first_step_s(run, view)
        if begun_s is None:
            continue
        if begun_s >= min(until_s, first_s + CHECK_EVERY_S):
            break
        ranks = len(view.placements)
        other = before and ranks and ranks != before and pace.curve == "samples_per_s"
        scale = ranks / before if other else 1.0
        ends_s = min(until_s, view.ended_s if view.ended_s is not None else until_s)
        at_s = back_s(run, pace, begun_s, ends_s, scale)
        if at_s is not None:
            of = f", of {ranks} ranks and not {before}" if other else ""
            found[M.THROUGHPUT_BACK] = Seen(at_s, f"{RANKS}{of}")
            break
    return found


def _phase_ended_s(run: RunView, attempt: AttemptView, phase: Phase) -> float | None:
    """When the attempt entered a later phase, after the last time that it was in this one."""
    of_it = [(at_s, reported) for at_s, number, reported in run.phases if number == attempt.number]
    begun = [at for at, (_, reported) in enumerate(of_it) if reported is phase]
    if not begun or begun[-1] + 1 >= len(of_it):
        return None
    return of_it[begun[-1] + 1][0]
