"""Follow a drill to its end, and say what came of it."""

from __future__ import annotations

from typing import Any

from cockpit.cli.streams import tell
from cockpit.insight.recovery import is_settled, recovery
from cockpit.model.drill import Drill, Recovery
from cockpit.session import Session
from cockpit.store.store import Store

PHASES = (
    ("pod_gone_s", "pod gone"),
    ("detected_s", "noticed by Ray"),
    ("attempt_ended_s", "attempt ended"),
    ("pod_ready_s", "replacement pod ready"),
    ("restarted_s", "new attempt started"),
    ("first_step_s", "first new step"),
)


def follow(session: Session, drill: Drill, timeout_s: float) -> Recovery:
    """Wait until the run has made a new step, or is over, or the time is up.

    Without a run it waits for the pod's replacement. Each phase is told on standard error as it
    comes.
    """
    told: set[str] = set()

    def settled(store: Store) -> bool:
        measured = recovery(store, drill)
        for name, words in PHASES:
            if name not in told and (at_s := getattr(measured, name)) is not None:
                told.add(name)
                tell(f"  {at_s:6.1f} s  {words}")
        if not drill.run_id:
            return measured.pod_ready_s is not None
        return is_settled(store.runs.get(drill.run_id), measured)

    session.wait(settled, timeout_s)
    return recovery(session.store, drill)


def sentence(measured: Recovery) -> str:
    """One line for people: whether, after how long, and what it cost."""
    drill = measured.drill
    fault = f"{drill.fault} of {drill.target}"
    if not drill.run_id:
        if measured.pod_ready_s is None:
            return f"{fault}: not replaced (there was no run to watch)"
        return f"{fault}: replaced after {measured.pod_ready_s:.1f} s (there was no run to watch)"
    if not measured.recovered:
        why = f": {measured.reason}" if measured.reason else ""
        return f"{fault}: NOT recovered{why}"
    parts = [
        f"{word} {value:.1f} s"
        for word, value in (
            ("detected", measured.detected_s),
            ("restarted", measured.restarted_s),
            ("first new step", measured.first_step_s),
        )
        if value is not None
    ]
    lost = measured.steps_lost
    steps = "" if lost is None else f", {lost} step{'' if lost == 1 else 's'} lost"
    return f"recovered from {fault}: {', '.join(parts)}{steps}"


def as_row(measured: Recovery) -> dict[str, Any]:
    """The keys of the summary that `cockpit demo --headless` prints as `drill`."""
    return {
        "fault": measured.drill.fault,
        "target": measured.drill.target,
        "ranks": list(measured.drill.ranks),
        "pod_gone_s": measured.pod_gone_s,
        "detected_s": measured.detected_s,
        "attempt_ended_s": measured.attempt_ended_s,
        "pod_ready_s": measured.pod_ready_s,
        "restarted_s": measured.restarted_s,
        "first_step_s": measured.first_step_s,
        "last_step": measured.last_step,
        "resumed_step": measured.resumed_step,
        "steps_lost": measured.steps_lost,
        "recovered": measured.recovered,
        "reason": measured.reason,
    }
