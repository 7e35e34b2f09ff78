"""Follow a drill to its end, and say what came of it."""

from __future__ import annotations

from typing import Any

from cockpit.cli.output import tables
from cockpit.cli.output.streams import tell
from cockpit.insight.recovery.measurement import Reading, is_complete, recovery
from cockpit.insight.recovery.text import sentence as sentence
from cockpit.model.drill import Drill, Milestone, Recovery
from cockpit.session.session import Session
from cockpit.store.store import Store

POD_GONE = "pod gone"


def follow(
    session: Session, drill: Drill, timeout_s: float, before: Reading | None = None
) -> Recovery:
    """Wait until nothing more is to come of it, or the time is up.

    Without a run it waits for the pod's replacement. Each milestone is told on standard error as it
    comes, with who said so.
    """
    told: set[str] = set()

    def settled(store: Store) -> bool:
        measured = recovery(store, drill, before)
        for name, at_s, source in milestones(measured):
            if name not in told:
                told.add(name)
                tell(f"  {at_s:6.1f} s  {name} ({source})")
        return is_complete(store, drill, before or Reading(), session.clock())

    session.wait(settled, timeout_s)
    return recovery(session.store, drill, before)


def milestones(measured: Recovery) -> list[tuple[str, float, str]]:
    """What was reached, in the order of time: its name, after how many seconds, who said so."""
    found = [
        (instant.milestone.value, instant.after_s, instant.source)
        for instant in measured.instants
        if instant.milestone is not Milestone.INJECTED
    ]
    if measured.pod_gone_s is not None:
        found.append((POD_GONE, measured.pod_gone_s, "backend"))
    return sorted(found, key=lambda item: item[1])


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
        "interrupted": measured.interrupted,
        "milestones": [tables.as_json(instant) for instant in measured.instants],
        "seconds_lost": measured.seconds_lost,
        "gpu_seconds_lost": measured.gpu_seconds_lost,
        "goodput_percent": measured.goodput_percent,
        "loss": tables.as_json(measured.continuity),
        "restarts": measured.restarts,
        "budget": measured.budget,
        "ranks_before": measured.ranks_before,
        "ranks_after": measured.ranks_after,
        "unseen": list(measured.unseen),
    }
