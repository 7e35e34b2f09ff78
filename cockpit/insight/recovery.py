"""How a run came back from a drill, read from the events alone."""

from __future__ import annotations

from cockpit.model.drill import Drill, Recovery
from cockpit.model.run import RunState
from cockpit.store.run import AttemptView, RunView
from cockpit.store.store import Store


def recovery(store: Store, drill: Drill) -> Recovery:
    """The timeline of the drill so far, in seconds since the injection.

    Each instant is the time in the event of the source that saw it: the pod's end from the backend,
    the run's states and attempts from Ray Train's callback, the first step from the rank itself.
    """
    run = store.runs.get(drill.run_id)
    gone = store.pods_gone.get(drill.target)
    old = run.attempts.get(drill.attempt) if run else None
    new = _next_attempt(run, drill) if run else None
    ended = old.ended_s if old else None
    left = _left_running(run, drill) if run else None
    seen = [at_s for at_s in (ended, left) if at_s is not None]
    return Recovery(
        drill=drill,
        pod_gone_s=_since(drill, gone),
        detected_s=_since(drill, min(seen)) if seen else None,
        attempt_ended_s=_since(drill, ended),
        pod_ready_s=_since(drill, _pods_back(store, drill)),
        restarted_s=_since(drill, new.started_s) if new else None,
        first_step_s=_since(drill, new.first_step_s) if new else None,
        resumed_step=new.first_step if new else None,
        last_step=old.last_step if old else None,
        reason=old.reason if old else "",
    )


def is_settled(run: RunView | None, measured: Recovery) -> bool:
    """Whether nothing more will come: the run made a new step, or is over."""
    return measured.recovered or (run is not None and run.state.is_over)


def _since(drill: Drill, at_s: float | None) -> float | None:
    return None if at_s is None else round(at_s - drill.injected_s, 3)


def _next_attempt(run: RunView, drill: Drill) -> AttemptView | None:
    later = [n for n in run.attempts if n > drill.attempt]
    return run.attempts[min(later)] if later else None


def _left_running(run: RunView, drill: Drill) -> float | None:
    return next(
        (at for at, state in run.states if at >= drill.injected_s and state != RunState.RUNNING),
        None,
    )


def _pods_back(store: Store, drill: Drill) -> float | None:
    """When the count of ready workers was again what it was before the fault."""
    before = [count for at_s, count in store.ready_counts if at_s <= drill.injected_s]
    if not before:
        return None
    fell = False
    for at_s, count in store.ready_counts:
        if at_s <= drill.injected_s:
            continue
        fell = fell or count < before[-1]
        if fell and count >= before[-1]:
            return at_s
    return None
