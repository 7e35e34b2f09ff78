"""Log one drill: events while it runs, and a record at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from cockpit.drills.faults.catalog import ENDS_PODS
from cockpit.drills.faults.fault import DrillContext
from cockpit.drills.plan.plan import DrillPlan
from cockpit.format import in_seconds, inflected, plural
from cockpit.insight.recovery.drill_comparison import BEFORE_S, curves
from cockpit.insight.recovery.measurement import Reading, is_complete, recovery
from cockpit.model.drill import (
    Drill,
    DrillRecord,
    KeptDrill,
    Milestone,
    ProbeResult,
    Recovery,
    Stage,
    Verdict,
)
from cockpit.model.error import CockpitError
from cockpit.model.event import DrillEnded, DrillInjected, DrillProbed, DrillStaged
from cockpit.model.text import one_line
from cockpit.store.store import Store

ANSWER_S = 5.0
"""How long to wait for the store at the end: a session that is being closed is not drained, and the
drill must still end."""
PARTS = 10
"""Of that time. A process that was stopped, as by ctrl+z, finds its time over when it continues,
before the store could answer: it loses one part, not all."""


class DrillLog:
    """Records the events and measurements of one drill."""

    def __init__(self, context: DrillContext, plan: DrillPlan, drill_id: str, seed: int) -> None:
        self._context, self._plan = context, plan
        self.id, self.seed = drill_id, seed
        self.drills: list[Drill] = []
        self.readings: dict[str, Reading] = {}
        """How the run was just before each drill, by the drill's id."""
        self._stages: list[tuple[Stage, float]] = []
        self._probes: list[ProbeResult] = []
        self._notes: list[str] = []

    def stage(self, stage: Stage, message: str = "") -> None:
        """The stage begins; called again, its message changes."""
        at_s = self._context.clock()
        if not self._stages or self._stages[-1][0] is not stage:
            self._stages.append((stage, at_s))
        self._context.dispatch(
            DrillStaged(
                at_s=at_s,
                source="user",
                drill_id=self.id,
                name=self._plan.name,
                stage=stage,
                message=message,
            )
        )

    def probed(self, result: ProbeResult) -> None:
        self._probes.append(result)
        self._context.dispatch(
            DrillProbed(at_s=result.at_s, source="user", drill_id=self.id, result=result)
        )

    def note(self, *lines: str) -> None:
        """Warnings for the reader."""
        self._notes += lines

    def begins(self, drill: Drill, reading: Reading) -> None:
        """It is about to be injected: what it breaks is measured against this moment."""
        self.drills.append(drill)
        self.readings[drill.id] = reading

    def injected(self, drill: Drill) -> None:
        self._context.dispatch(DrillInjected(at_s=drill.injected_s, source="user", drill=drill))

    def is_complete(self, store: Store) -> bool:
        """Whether the recoveries of all drills are complete."""
        now_s = self._context.clock()
        return all(
            is_complete(store, drill, self._reading(drill.id), now_s) for drill in self._hit(store)
        )

    async def measured(self) -> tuple[Recovery, ...]:
        """The recovery from each of the drills, as far as it is measured."""
        return await self._context.ask(
            lambda store: tuple(
                recovery(store, drill, self._reading(drill.id)) for drill in self._hit(store)
            )
        )

    async def end(
        self, verdict: Verdict, why: str, keep: Callable[[KeptDrill], None] | None
    ) -> DrillRecord:
        """The final record; it is stored before it is emitted."""
        measured, kept = await self._at_last()
        self.stage(Stage.ENDED, why)
        record = DrillRecord(
            id=self.id,
            name=self._plan.name,
            cluster=str(self._context.backend.ref),
            # Not when it was planned: a person may have thought about it for a while.
            began_s=self._stages[0][1],
            ended_s=self._context.clock(),
            verdict=verdict,
            why=why,
            drills=tuple(one.drill for one in measured),
            recoveries=measured,
            stages=tuple(self._stages),
            probes=tuple(self._probes),
            notes=self._own_notes(),
            game_day=self._plan.game_day,
            asked=tuple(spec.fault for spec in self._plan.faults),
        )
        if keep is not None:
            try:
                keep(replace(kept, record=record))
            except CockpitError as error:
                self.note(error.what_and_why)
                record = replace(record, notes=self._own_notes())
        self._context.dispatch(DrillEnded(at_s=record.ended_s, source="user", record=record))
        return record

    async def _at_last(self) -> tuple[tuple[Recovery, ...], KeptDrill]:
        """The measurements, and the run's curves around them, only for the record."""
        empty = KeptDrill(DrillRecord(self.id, "", "", 0.0, 0.0, Verdict.BROKEN, ""))
        if not self.drills:
            return (), empty
        first = min(drill.injected_s for drill in self.drills)
        run_id = next((drill.run_id for drill in self.drills if drill.run_id), "")
        end_s = self._context.clock()

        def curves_of(store: Store) -> KeptDrill:
            run = store.runs.get(run_id)
            found = curves(store, run_id, first - BEFORE_S, end_s)
            return replace(empty, run=run.name if run else "", curves=found)

        async def answers() -> tuple[tuple[Recovery, ...], KeptDrill]:
            return await self.measured(), await self._context.ask(curves_of)

        asked = asyncio.create_task(answers())
        try:
            for _ in range(PARTS):
                if (await asyncio.wait({asked}, timeout=ANSWER_S / PARTS))[0]:
                    return asked.result()
        finally:
            asked.cancel()
        self.note("the recovery was not measured: cockpit was being ended")
        return tuple(Recovery(drill) for drill in self.drills), empty

    def _own_notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one_line(note) for note in self._notes))

    def _hit(self, store: Store) -> list[Drill]:
        """The injected faults; for a fault that kills repeatedly, each of its kills."""
        ours = {drill.id: drill for drill in store.drills if drill.id.startswith(f"{self.id}.")}
        by_id = {drill.id: drill for drill in self.drills} | ours
        several = {drill_id.rpartition(".")[0] for drill_id in by_id}
        return [drill for drill_id, drill in by_id.items() if drill_id not in several]

    def _reading(self, drill_id: str) -> Reading:
        """Its own, or that of the drill which it is a part of."""
        own = self.readings.get(drill_id)
        return own or self.readings.get(drill_id.rpartition(".")[0], Reading())


def judge(
    plan: DrillPlan, during: str, after: str, measured: Sequence[Recovery]
) -> tuple[Verdict, str]:
    """Return the first criterion that decides: hypothesis, recovery, recovery time, cost.

    `during` and `after` are the probes that failed then, as text; empty without any.
    """
    if during:
        return Verdict.FAILED, f"while the fault lasted: {during}"
    for one in measured:
        if missed := _missed(plan, one):
            return Verdict.FAILED, missed
    if after:
        return Verdict.FAILED, f"after the recovery: {after}"
    took = [one.first_step_s for one in measured if one.first_step_s is not None]
    slower = "; throughput was not back within 5 %" if any(map(_is_slower, measured)) else ""
    if took:
        lost = [one.seconds_lost for one in measured if one.seconds_lost is not None]
        cost = f", {in_seconds(max(lost), 1)} lost" if lost else ""
        return Verdict.PASSED, f"first new step after {in_seconds(max(took), 1)}{cost}{slower}"
    if any(one.interrupted is False for one in measured):
        return Verdict.PASSED, f"training continued in the same attempt{slower}"
    ready = [one.pod_ready_s for one in measured if one.pod_ready_s is not None]
    if ready:
        took_s = in_seconds(max(ready), 1)
        return Verdict.PASSED, f"no run is active; the pods were ready after {took_s}"
    return Verdict.PASSED, "no run is active; only the pods were measured"


def _missed(plan: DrillPlan, one: Recovery) -> str:
    """The targets of the plan that this recovery missed, in one line."""
    drill = one.drill
    hit = f"{drill.fault} of {drill.target}"
    if drill.run_id and not one.recovered and one.interrupted is not False:
        return f"{hit}: the run did not recover" + (f" ({one.reason})" if one.reason else "")
    if not drill.run_id and drill.fault in ENDS_PODS and one.pod_ready_s is None:
        return f"{hit}: the {inflected(len(drill.pods) or 1, 'pod')} did not become ready again"
    limit_s, took_s = plan.recover_within_s, one.first_step_s
    if limit_s is not None and took_s is not None and took_s > limit_s:
        return f"{hit}: first new step after {in_seconds(took_s, 1)}, limit {in_seconds(limit_s)}"
    most, lost = plan.max_steps_lost, one.steps_lost
    if most is not None and lost is not None and lost > most:
        return f"{hit}: {plural(lost, 'step')} lost, limit {most}"
    limit_s, lost_s = plan.max_time_lost_s, one.seconds_lost
    if limit_s is not None and drill.run_id and (lost_s is None or lost_s > limit_s):
        if lost_s is None:
            return f"{hit}: the run did not catch up, so the time lost is unknown"
        return f"{hit}: {in_seconds(lost_s, 1)} lost, limit {in_seconds(limit_s)}"
    if one.continuity is not None and not one.continuity.continuous:
        return (
            f"{hit}: the loss is not continuous: {one.continuity.before:.4g} before the fault, "
            f"{one.continuity.after:.4g} after"
        )
    return ""


def _is_slower(one: Recovery) -> bool:
    """Whether the run trains, and no other reason explains that its throughput did not recover."""
    trains = bool(one.drill.run_id) and (one.recovered or one.interrupted is False)
    return trains and not one.missing_data and one.reached(Milestone.THROUGHPUT_BACK) is None
