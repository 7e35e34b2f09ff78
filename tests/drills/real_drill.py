"""Run a drill on a real cluster, and observe it while it is in progress."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cockpit.drills.engine.drill import Experiment
from cockpit.drills.engine.journal import Journal
from cockpit.drills.plan.plan import DrillPlan, FaultSpec, TargetSpec, Timeouts
from cockpit.drills.probes.external import ContextProber
from cockpit.model.drill import DrillRecord, Milestone, Recovery, Stage
from cockpit.session.session import Session
from cockpit.store.store import Store

TIMEOUT_S = 480.0
AFTER_RANK_KILL = {
    Milestone.INJECTED,
    Milestone.SYMPTOM,
    Milestone.DETECTED,
    Milestone.STOPPED,
    Milestone.ATTEMPT_ENDED,
    Milestone.WORKERS_STARTED,
    Milestone.PROCESS_GROUP,
    Milestone.RESTORED,
    Milestone.FIRST_STEP,
}
"""What is reported of a killed rank on each backend; what comes after the first step may differ."""


def plan(
    fault: str, target: str = "random", *, recover_s: float = 300.0, **values: object
) -> DrillPlan:
    spec = FaultSpec(fault, {key: str(v) for key, v in values.items()}, TargetSpec(select=target))
    return DrillPlan(fault, (spec,), seed=1, timeouts=Timeouts(recover_s=recover_s))


def conduct(
    session: Session,
    asked: DrillPlan,
    journal: Path,
    *,
    at: Stage = Stage.DURING,
    observe: Callable[[Store], None] | None = None,
    abort: bool = False,
) -> DrillRecord:
    """Run the drill to its end. `look` is called once, when it has reached the stage `at`.

    With `abort` the drill is aborted after that.
    """
    experiment = Experiment(session, asked, ContextProber(session), journal=Journal(journal))
    done = session.submit(experiment.conduct())
    looked = False

    def over(store: Store) -> bool:
        nonlocal looked
        view = store.drilling.get(experiment.id)
        if view is not None and observe is not None and not looked and view.stage is at:
            looked = True
            observe(store)
            if abort:
                experiment.abort("seen enough")
        return done.done()

    assert session.wait(over, TIMEOUT_S), f"{asked.name} did not end in {TIMEOUT_S:g} s"
    assert looked == (observe is not None), f"not {at.value!r}: {done.result().why}"
    record = done.result()
    assert not list(journal.glob("*")), "nothing is left to undo"
    return record


def rank_kill_report(record: DrillRecord) -> Recovery:
    """The recovery of a killed rank, which has the same shape on each backend."""
    (recovery,) = record.recoveries
    assert recovery.recovered, record
    reached = {instant.milestone for instant in recovery.instants}
    assert reached & AFTER_RANK_KILL == AFTER_RANK_KILL, recovery
    assert not reached & {Milestone.POD_REPLACED, Milestone.POD_READY}
    assert recovery.steps_lost is not None
    assert (recovery.restarts, recovery.budget) == (1, "max_failures")
    assert recovery.ranks_before == recovery.ranks_after
    return recovery
