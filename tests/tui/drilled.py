"""A drill on the simulated run, with stages and probes as the engine emits them; earlier ones."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from cockpit.model.drill import (
    Continuity,
    Drill,
    DrillRecord,
    Instant,
    Milestone,
    ProbeResult,
    Recovery,
    Stage,
    Verdict,
)
from cockpit.model.event import DrillEnded, DrillInjected, DrillProbed, DrillStaged, Event
from tests.tui.simulated import RUN, START_S, Simulation, _digits

RECORD = "drill-7c1e"
KILL_S = 80.0
TOO_LATE = "pod-kill of demo-workers-1: first new step after 62.9 s, not 45 s"
SAID = {
    Milestone.SYMPTOM: (0.5, "backend"),
    Milestone.STOPPED: (0.9, "telemetry"),
    Milestone.DETECTED: (3.1, "telemetry"),
    Milestone.ATTEMPT_ENDED: (3.2, "telemetry"),
    Milestone.POD_REPLACED: (5.2, "backend"),
    Milestone.POD_READY: (7.5, "backend"),
    Milestone.WORKERS_STARTED: (14.0, "telemetry"),
    Milestone.PROCESS_GROUP: (16.2, "telemetry"),
    Milestone.RESTORED: (16.9, "telemetry"),
    Milestone.FIRST_STEP: (18.5, "telemetry"),
    Milestone.CAUGHT_UP: (19.6, "telemetry"),
    Milestone.THROUGHPUT_BACK: (23.0, "telemetry"),
}


def measured(drill: Drill, until_s: float = 1e9, factor: float = 1.0) -> Recovery:
    """All milestones that were reached by then; `factor` makes all of it slower."""
    reached = {
        milestone: (factor * after_s, source)
        for milestone, (after_s, source) in SAID.items()
        if factor * after_s <= until_s
    }

    def at(milestone: Milestone) -> float | None:
        return reached[milestone][0] if milestone in reached else None

    return Recovery(
        drill,
        detected_s=at(Milestone.DETECTED),
        attempt_ended_s=at(Milestone.ATTEMPT_ENDED),
        pod_ready_s=at(Milestone.POD_READY),
        restarted_s=at(Milestone.WORKERS_STARTED),
        first_step_s=at(Milestone.FIRST_STEP),
        resumed_step=1249,
        last_step=1260,
        reason="Worker group is unhealthy: rank 1 died with its node",
        instants=(
            Instant(Milestone.INJECTED, 0.0, "user"),
            *(Instant(m, after_s, source) for m, (after_s, source) in reached.items()),
        ),
        interrupted=True,
        seconds_lost=factor * 18.9,
        goodput_percent=21.0,
        continuity=Continuity(0.171, 0.173, 0.012, continuous=True),
        restarts=1,
        budget="max_failures",
        missing_data=("the backend sent no data from 12 s to 13 s",),
    )


def past(
    record_id: str,
    began_s: float,
    factor: float,
    verdict: Verdict = Verdict.PASSED,
    why: str = "",
    fault: str = "pod-kill",
) -> DrillRecord:
    drill = Drill(
        f"{record_id}.1", fault, "demo-workers-1", (0,), START_S + began_s + 3, 0.0, RUN, 1, 400,
        workload="checkpointed", seed=7,
    )  # fmt: skip
    found = measured(drill, factor=factor)
    return DrillRecord(
        record_id,
        fault,
        "local:demo",
        START_S + began_s,
        START_S + began_s + 40,
        verdict,
        why or f"first new step after {found.first_step_s:.1f} s",
        (drill,),
        (found,),
        tuple((stage, START_S + began_s + n) for n, stage in enumerate(Stage)),
        (
            ProbeResult("replicas-ready", "before", True, "2 of 2 ready", START_S + began_s + 2),
            ProbeResult("throughput >= 80 %", "after", True, "97 %", START_S + began_s + 38),
        ),
        ("max_failures is 3: 2 more restarts are left",),
    )


def drilled(*, going: bool = True, kill_s: float = KILL_S) -> Simulation:
    """The digits run, on which a pod is killed as a drill, after three earlier ones."""
    return Simulation(_events(kill_s, going))


def _events(kill_s: float, going: bool) -> Iterator[Event]:
    earlier = (
        past("drill-01aa", -7200, 1.0),
        past("drill-02bb", -5400, 1.3),
        past("drill-03cc", -3600, 3.4, Verdict.FAILED, TOO_LATE),
        past("drill-04dd", -1800, 0.5, Verdict.ABORTED, "by the user", "rank-freeze"),
    )  # fmt: skip
    for record in earlier:
        yield DrillEnded(at_s=START_S, source="user", record=record)
    injected: Drill | None = None
    for event in _digits(kill_s, 400.0):
        if isinstance(event, DrillInjected):
            injected = replace(
                event.drill, id=f"{RECORD}.1", workload="checkpointed", seed=48213,
                parameters={"grace_s": "0"},
            )  # fmt: skip
            yield replace(event, drill=injected)
        else:
            yield event
    assert injected is not None
    for at_s, stage, text in (
        (kill_s - 4, Stage.PREPARING, ""),
        (kill_s - 3, Stage.BEFORE, ""),
        (kill_s - 0.5, Stage.INJECTING, "Delete pod demo-workers-2 (group workers): SIGKILL now."),
        (kill_s + 0.2, Stage.RECOVERING, ""),
        (kill_s + 30, Stage.AFTER, ""),
    ):
        yield DrillStaged(
            at_s=START_S + at_s, source="user", drill_id=RECORD, name="pod-kill", stage=stage,
            message=text,
        )  # fmt: skip
    for at_s, probe, when, ok, value in (
        (kill_s - 3, "replicas-ready", "before", True, "2 of 2 ready"),
        (kill_s - 2, "throughput >= 80 %", "before", True, "100 % of 1.28k samples/s"),
        (kill_s + 2, "checkpoint-age <= 600 s", "during", None, "no checkpoint yet"),
        (kill_s + 31, "replicas-ready", "after", True, "2 of 2 ready"),
        (kill_s + 32, "throughput >= 80 %", "after", False, "61 % of 1.28k samples/s"),
    ):
        result = ProbeResult(probe, when, ok, value, START_S + at_s)
        yield DrillProbed(at_s=START_S + at_s, source="user", drill_id=RECORD, result=result)
    if going:
        return
    record = replace(
        past(
            RECORD, kill_s - 4, 1.0, Verdict.FAILED, "after the recovery: throughput >= 80 %: 61 %"
        ),
        drills=(injected,),
        recoveries=(measured(injected),),
        ended_s=START_S + kill_s + 33,
    )
    yield DrillEnded(at_s=record.ended_s, source="user", record=record)
