"""Kill a pod as a drill, print each milestone, and return what was measured."""

from __future__ import annotations

from typing import Any

from cockpit.actions.drills import DrillActions
from cockpit.cli.drill.progress import follow
from cockpit.cli.output import tables
from cockpit.cli.output.streams import tell
from cockpit.drills.plan.kill import KillPlan
from cockpit.insight.recovery.measurement import recovery
from cockpit.model.drill import Milestone, Recovery, Verdict
from cockpit.model.error import CockpitError
from cockpit.model.text import as_sentence
from cockpit.session.session import Session
from cockpit.store.store import Store

POD_GONE = "pod ended"
NOT_MEASURED = "the recovery was not measured (--no-wait)"


def kill(session: Session, actions: DrillActions, plan: KillPlan, *, wait: bool = True) -> Recovery:
    """Print each milestone on standard error as it is reached, and return the recovery.

    Without `wait` the drill ends once the pod is deleted. Raises CockpitError if the pod was not
    killed, and KeyboardInterrupt once the drill has ended after a Ctrl-C.
    """
    experiment = actions.experiment(plan.drill)
    printed: set[str] = set()

    def show(store: Store) -> None:
        drill = next((d for d in store.drills if d.id.startswith(f"{experiment.id}.")), None)
        if drill is None:
            return
        if not wait:
            experiment.abort(NOT_MEASURED)
            return
        measured = recovery(store, drill, experiment.readings.get(drill.id))
        for name, at_s, source in milestones(measured):
            if name not in printed:
                printed.add(name)
                tell(f"  {at_s:6.1f} s  {name} ({source})")

    record, interrupted = follow(session, actions.drill(experiment), experiment.abort, show)
    if experiment.error is not None:
        raise experiment.error
    if interrupted:
        raise KeyboardInterrupt
    if not record.recoveries:
        raise CockpitError("Nothing was killed.", as_sentence(record.why))
    if wait and record.verdict is Verdict.ABORTED:
        tell(f"The drill was aborted: {record.why}.")
    return record.recoveries[0]


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
