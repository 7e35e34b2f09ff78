"""One drill from its choice of targets to its verdict.

    preparing -> checking before -> injecting -> fault lasts -> undoing -> recovering
              -> checking after -> ended

It runs as one coroutine on the session's loop, asks the store for what it needs to know, and emits
each stage as an event: the UI, the recorder and a report read the same events.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import TypeVar

from msgspec.structs import replace

from cockpit.drills.engine import lease, undo
from cockpit.drills.engine.abort import Abort, Aborted, Injection, to_the_end
from cockpit.drills.engine.countdown import Countdown
from cockpit.drills.engine.drill_log import DrillLog, judge
from cockpit.drills.engine.journal import Entry, Journal
from cockpit.drills.faults import catalog
from cockpit.drills.faults.fault import (
    Aim,
    Armed,
    DrillContext,
    Fault,
    Order,
    Undo,
    Victims,
    injected,
    parameter_values,
)
from cockpit.drills.plan import target
from cockpit.drills.plan.plan import DrillPlan, require_within
from cockpit.drills.plan.warnings import warnings
from cockpit.drills.probes.external import Prober
from cockpit.drills.probes.probe_runner import EVERY_S, ProbeRunner
from cockpit.format import in_seconds
from cockpit.insight.recovery.measurement import Reading, baseline
from cockpit.model.drill import DrillRecord, KeptDrill, Stage, Verdict
from cockpit.model.error import CockpitError, LeaseHeldError, ReplacedError, UsageError
from cockpit.model.text import as_sentence, one_line
from cockpit.sources.polling.pause import pause
from cockpit.store.store import Store

T = TypeVar("T")

LOOK_S = 0.25
"""The interval at which a condition of the store is polled."""
ROUND_S = 1.0
"""The longest time between two such polls."""


class Experiment:
    """One drill. `conduct` it once; `abort` may be called from any thread."""

    def __init__(
        self,
        context: DrillContext,
        plan: DrillPlan,
        prober: Prober,
        *,
        journal: Journal | None = None,
        drill_id: str = "",
        fault: Callable[[str], Fault] = catalog.fault,
        keep: Callable[[KeptDrill], None] | None = None,
        timing: lease.Timing = lease.TIMING,
    ) -> None:
        """`keep` is given the drill once it is over, for the history."""
        self.id = drill_id or f"drill-{secrets.token_hex(4)}"
        self.plan = plan
        self.seed = plan.seed if plan.seed is not None else secrets.randbelow(2**31)
        self._context = context
        self._fault, self._keep = fault, keep
        self._journal = journal or Journal()
        self._log = DrillLog(context, plan, self.id, self.seed)
        self._probes = ProbeRunner(context, prober, plan, self._log)
        self._abort = Abort(self._probes.abort_conditions, EVERY_S)
        self._timing = timing
        self._injections: list[Injection] = []
        self._agreed: list[Victims] | None = None
        """The targets of the faults, as announced before."""
        self.error: CockpitError | None = None
        """Why the drill was refused or broke, where an error is the reason."""

    @property
    def readings(self) -> dict[str, Reading]:
        """How the run was just before each drill that was injected, by the drill's id."""
        return self._log.readings

    def abort(self, why: str = "by the user") -> None:
        """Abort: the fault is undone, and the measurements so far are kept."""
        self._abort.request(why)

    async def prepare(self) -> tuple[Armed, ...]:
        """Select the targets and check the preconditions. Changes nothing. Raises CockpitError.

        The same seed on the same cluster selects the same targets, so that a dry run shows them.
        Raises CockpitError if the targets have changed since they were shown.
        """
        random = Random(self.seed)
        armed: list[Armed] = []
        for number, spec in enumerate(self.plan.faults, start=1):
            found = self._fault(spec.fault)
            if why := found.obstacle(self._context.backend.ref.backend):
                raise UsageError(
                    f"Fault {spec.fault} is not available on this cluster.", as_sentence(why)
                )
            given = parameter_values(found, spec.values)
            victims = await self._context.ask(
                partial(target.choose, kind=found, spec=spec.target, random=random)
            )
            uids = {pod.name: pod.uid for pod in victims.pods}
            order = Order(f"{self.id}.{number}", given, random, self.plan.blast_radius, uids)
            prepared = await found.prepare(self._context, victims, order)
            armed.append(Armed(spec, found, victims, prepared))
        await self._context.ask(partial(self._require_within, armed=armed))
        self._agreed = _same([one.victims for one in armed], self._agreed)
        return tuple(armed)

    def _require_within(self, store: Store, armed: Sequence[Armed]) -> None:
        pods = [
            pod
            for one in armed
            # A checkpoint is damaged through a pod, which is not hit itself.
            if one.fault.aim is not Aim.CHECKPOINT
            for pod in one.victims.pods
        ]
        require_within(store, pods, self.plan.blast_radius)

    async def caution(self, armed: Sequence[Armed]) -> tuple[str, ...]:
        """Warnings for the user, above all that a run will not recover."""
        every = tuple(one.victims for one in armed)
        return await self._context.ask(lambda store: warnings(store, every))

    async def conduct(self) -> DrillRecord:
        """Run the drill. Does not raise CockpitError: errors are in the record.

        When it is cancelled, injected faults are undone before the cancellation continues.
        """
        verdict, why = Verdict.BROKEN, "internal error in cockpit"
        try:
            self._log.stage(Stage.PREPARING)
            async with lease.held(
                self._context.backend,
                self.id,
                guard=self._abort.guard,
                on_wait=partial(self._log.stage, Stage.PREPARING),
                note=self._log.note,
                lost=self.abort,
                timing=self._timing,
            ):
                verdict, why = await self._held()
        except CockpitError as error:
            verdict, why = self._failed(error)
        except Aborted as aborted:
            verdict, why = Verdict.ABORTED, str(aborted)
        except asyncio.CancelledError:
            verdict, why = Verdict.ABORTED, "interrupted"
            raise
        finally:
            record = await self._log.end(verdict, why, self._keep)
        return record

    async def _held(self) -> tuple[Verdict, str]:
        """Run while the lease is held. Injected faults are undone when it returns or raises."""
        try:
            verdict, why = await self._run()
        except CockpitError as error:
            verdict, why = self._failed(error)
        except Aborted as aborted:
            verdict, why = Verdict.ABORTED, str(aborted)
        finally:
            trouble = await self._undone()
        return (Verdict.BROKEN, trouble) if trouble else (verdict, why)

    # -- the stages

    async def _run(self) -> tuple[Verdict, str]:
        refused, during = await self._abort.guard(self._break())
        if refused:
            return Verdict.REFUSED, refused
        if trouble := await self._undone():
            return Verdict.BROKEN, trouble
        after = await self._abort.guard(self._recover())
        return judge(self.plan, during, after, await self._log.measured())

    async def _break(self) -> tuple[str, str]:
        """Up to the end of the fault: why it was not done, and what did not hold during it."""
        armed = await self._within(self.plan.timeouts.prepare_s, "preparing", self.prepare())
        self._log.note(*await self.caution(armed))
        self._log.stage(Stage.BEFORE)
        failed = await self._probes.holds_before() or await self._probes.abort_conditions()
        if failed:
            return f"the hypothesis does not hold before the fault: {failed}", ""
        self._abort.armed = True
        self._log.stage(
            Stage.INJECTING, "; ".join(one_line(one.prepared.lines[0]) for one in armed)
        )
        for one in armed:
            await self._inject(one)
        return "", await self._during(armed)

    async def _inject(self, one: Armed) -> None:
        """Lease, journal, fault, and the event of the injection with the instant before it."""
        try:
            await lease.renew(self._context.backend, self.id, self._timing)
        except LeaseHeldError as error:
            if not self._injections:
                raise
            raise Aborted(f"the lease of the cluster was lost: {one_line(error.why)}") from error
        name = f"{self.id}.{len(self._log.drills) + 1}"
        ask, kind = self._context.ask, one.fault
        seen = await ask(lambda store: target.as_now(store, one.victims))
        reading = await ask(lambda store: baseline(store, seen.run_id))
        workload, profile = await ask(lambda store: target.workload(store, seen))
        drill = replace(
            injected(name, kind, seen, self._context.clock(), one.prepared),
            seed=self.seed,
            game_day=self.plan.game_day,
            workload=workload,
            profile=profile,
        )
        entry: Entry | None = None
        if one.prepared.undo:
            uids = {pod.name: pod.uid for pod in one.victims.pods}
            entry = self._journal.write(
                name,
                kind.name,
                seen.name,
                self._context.backend.ref,
                [
                    replace(each, uid=each.uid or uids.get(each.pod, ""))
                    for each in one.prepared.undo
                ],
                self._context.clock(),
            )
        self._log.begins(drill, reading)
        limit_s = self.plan.timeouts.inject_s
        injection = Injection(entry, one.prepared, limit_s)
        self._injections.append(injection)
        await self._within(limit_s, f"injecting {kind.name}", injection.begun())
        self._log.injected(drill)
        if entry is not None:
            try:
                self._journal.answered(entry)
            except CockpitError as error:
                self._log.note(error.what_and_why)

    async def _during(self, armed: Sequence[Armed]) -> str:
        """Wait for the end of the longest fault. The first probe that failed, or an empty text."""
        lasts_s = max((one.prepared.lasts_s for one in armed), default=0.0)
        if not lasts_s:
            return ""
        self._log.stage(Stage.DURING, f"for {in_seconds(lasts_s)}")
        doing = [asyncio.create_task(_do(one.prepared.meanwhile)) for one in armed]
        failed, asked_s = "", -math.inf
        until_s = time.monotonic() + lasts_s
        try:
            while (now_s := time.monotonic()) < until_s:
                for task in doing:
                    if task.done():
                        task.result()
                if now_s - asked_s >= EVERY_S:
                    asked_s = now_s
                    found = await self._probes.holds_meanwhile()
                    failed = failed or found
                await pause(max(0.0, min(LOOK_S, until_s - time.monotonic())))
        finally:
            for task in doing:
                task.cancel()
            await asyncio.gather(*doing, return_exceptions=True)
        return failed

    async def _recover(self) -> str:
        """Wait until the run has recovered and the hypothesis holds. Return the failed probes."""
        self._log.stage(Stage.RECOVERING)
        limit_s = self.plan.timeouts.recover_s
        if not await self._wait(self._log.is_complete, limit_s):
            self._log.note(f"not all milestones were reached within {in_seconds(limit_s)}")
        await asyncio.sleep(self.plan.settle_s)
        self._log.stage(Stage.AFTER)
        return await self._probes.holds_again()

    async def _undone(self) -> str:
        """Undo everything, even when cancelled; why not, if something is left."""
        return await to_the_end(self._take_back) if self._injections else ""

    async def _take_back(self) -> str:
        if any(injection.entry for injection in self._injections):
            self._log.stage(Stage.UNDOING)
        left: list[str] = []
        kept: list[Entry] = []
        limit_s = self.plan.timeouts.undo_s
        for injection in self._injections:
            answered = await injection.answered()
            if injection.entry is None:
                continue
            entry = replace(injection.entry, answered=answered)
            try:
                async with asyncio.timeout(limit_s):
                    entry = self._effective(entry, injection.took_effect)
                    text = await undo.undo_effects(self._context.backend, self._journal, entry)
                    self._log.note(*text)
            except TimeoutError:
                left.append(f"undoing {entry.fault} took more than {in_seconds(limit_s)}")
                kept.append(entry)
            except CockpitError as error:
                left.append(one_line(error.what_and_why).removesuffix("."))
                kept.append(entry)
        self._injections = []
        self._give_up(kept)
        if not left:
            return ""
        trouble = f"{'; '.join(left)}. To undo it, run: cockpit drill undo"
        self._log.note(trouble)
        return trouble

    def _give_up(self, kept: Sequence[Entry]) -> None:
        """Leave these to `cockpit drill undo`, which skips what a living process undoes itself.

        Only after the last undo: another process that undoes one releases the lease of this drill.
        """
        for entry in kept:
            try:
                self._journal.give_up(entry.drill_id)
            except CockpitError as error:
                self._log.note(error.what_and_why)

    def _effective(self, entry: Entry, took_effect: Callable[[Undo], bool]) -> Entry:
        """The entry without the effects that did not happen, such as a refused drain."""
        for each in entry.undo:
            if not took_effect(each):
                try:
                    self._journal.done(entry.drill_id, each)
                except CockpitError as error:  # the other effects are undone all the same
                    self._log.note(error.what_and_why)
        return replace(entry, undo=tuple(filter(took_effect, entry.undo)))

    # -- waiting

    async def _wait(self, until: Callable[[Store], bool], timeout_s: float) -> bool:
        """Whether the condition became true in time."""
        time_limit = Countdown(timeout_s)
        while not await self._context.ask(until):
            if (left_s := time_limit.left_s(ROUND_S)) <= 0:
                return False
            await pause(min(LOOK_S, left_s))
        return True

    async def _within(self, limit_s: float, what: str, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(limit_s):
                return await work
        except TimeoutError as error:
            raise CockpitError(f"{what} took more than {in_seconds(limit_s)}.") from error

    def _failed(self, error: CockpitError) -> tuple[Verdict, str]:
        self.error = error
        why = one_line(error.what_and_why)
        return (Verdict.BROKEN if self._log.drills else Verdict.REFUSED), why


def _same(now: list[Victims], before: list[Victims] | None) -> list[Victims]:
    if before is None:
        return now
    was, is_now = ("; ".join(one_line(one.words) for one in them) for them in (before, now))
    if was != is_now:
        raise CockpitError(
            f"The cluster has changed: the drill would now hit {is_now}.",
            f"You confirmed {was}.",
            "Nothing was changed. Run the drill again.",
        )
    for old, new in zip(before, now, strict=True):
        for pod, same_name in zip(old.pods, new.pods, strict=True):
            if pod.uid != same_name.uid:
                raise ReplacedError("Pod", pod.name)
    return now


async def _do(work: Callable[[], Awaitable[None]] | None) -> None:
    if work is not None:
        await work()
