"""Conducting a game day: its steps one after the other, on one cluster."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from cockpit.backends.protocol import Scaled
from cockpit.drills.engine.abort import Abort, Aborted
from cockpit.drills.engine.countdown import Countdown
from cockpit.drills.engine.drill import ROUND_S, Experiment
from cockpit.drills.faults import catalog
from cockpit.drills.faults.fault import DrillContext
from cockpit.drills.gamedays.gameday import (
    Expect,
    GameDay,
    GameDayResult,
    Inject,
    Launch,
    Scale,
    Step,
    StepResult,
    Wait,
)
from cockpit.drills.plan.plan import DrillPlan, Timeouts
from cockpit.drills.probes import hypothesis
from cockpit.drills.probes.external import Prober
from cockpit.format import in_seconds
from cockpit.launch import submission
from cockpit.launch.submission import LaunchSpec
from cockpit.model.drill import DrillRecord, Verdict
from cockpit.model.error import CockpitError
from cockpit.model.run import Job
from cockpit.model.scale import ScaleRequest
from cockpit.model.text import one_line
from cockpit.sources.polling.pause import pause
from cockpit.sources.ray.http import MissingError
from cockpit.store.run import RunView
from cockpit.store.selectors import going_run
from cockpit.store.store import Store

LOOK_S = 0.5
STOP_S = 60.0
"""For a job that is stopped at the end of the day to be over."""
GOES_ON = (Verdict.PASSED, Verdict.FAILED, Verdict.REFUSED)
"""After any other end of a drill the state of the cluster is unknown."""


class GameDayActions(Protocol):
    """Changes the cluster: `cockpit.actions.drills.DrillActions` implements it."""

    async def submit(self, spec: LaunchSpec) -> Job: ...

    async def submit_and_resubmit(
        self,
        spec: LaunchSpec,
        times: int,
        log: Callable[[str], None],
        on_submit: Callable[[str], None],
    ) -> Job: ...

    async def stop_job(self, job_id: str) -> None: ...

    async def scale(self, request: ScaleRequest) -> Scaled: ...

    def experiment(self, plan: DrillPlan) -> Experiment: ...

    async def drill(self, experiment: Experiment) -> DrillRecord: ...


class GameDayRun:
    """One game day. `conduct` it once; `abort` may be called from any thread.

    `log` is called at the begin and end of each step, in a line.
    """

    def __init__(
        self,
        context: DrillContext,
        day: GameDay,
        actions: GameDayActions,
        prober: Prober,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.id = f"day-{secrets.token_hex(4)}"
        self.day = day
        self.experiment: Experiment | None = None
        """The running drill, or the one before."""
        self._context, self._actions, self._prober, self._log = (
            context,
            actions,
            prober,
            log,
        )
        self._abort = Abort(_nothing, LOOK_S)
        self._aborted = ""
        self._launched: list[str] = []
        """Jobs, by the newest id of each."""
        self._staying: list[asyncio.Task[Job]] = []
        self._results: list[StepResult] = []
        self._uid = ""
        """Of the cluster at the begin: a later one of the same name is not scaled."""

    def abort(self, why: str = "by the user") -> None:
        """The running drill is undone, and the rest of the day is left out."""
        self._aborted = self._aborted or why
        self._abort.request(why)
        if self.experiment is not None:
            self.experiment.abort(why)

    async def conduct(self) -> GameDayResult:
        """Run the game day. Does not raise CockpitError: errors are in the result."""
        began_s = self._context.clock()
        stop, whole = "", False
        self._uid = await self._context.ask(lambda store: store.uid)
        try:
            for number, step in enumerate(self.day.steps, start=1):
                stop = stop or (f"aborted: {self._aborted}" if self._aborted else "")
                if stop:
                    self._note(number, step, None, f"left out: {stop}", self._context.clock())
                else:
                    stop = await self._step(number, step)
            whole = True
        finally:
            # A session that is being closed answers nothing any more.
            await self._stop_launched(wait=whole)
        failed = next((result for result in self._results if result.ok is False), None)
        aborted = f"aborted: {self._aborted}" if self._aborted else ""
        drills = sum(result.kind == "drill" and result.ok is True for result in self._results)
        why = f"step {failed.number}, {failed.name}: {failed.why}" if failed else ""
        return GameDayResult(
            self.id,
            self.day.name,
            self.day.about,
            str(self._context.backend.ref),
            began_s,
            self._context.clock(),
            not failed and not aborted,
            aborted or why or f"{drills} drill{'s'[: drills != 1]} passed",
            tuple(self._results),
        )

    async def _step(self, number: int, step: Step) -> str:
        """Run a step and record its result. Return why the other steps are skipped, if they are."""
        began_s = self._context.clock()
        self._log(f"step {number} of {len(self.day.steps)}: {step.name}")
        record: DrillRecord | None = None
        ok: bool | None
        try:
            if isinstance(step.doing, Inject):
                ok, why, record = await self._drill(step.doing)
            else:
                ok, why = True, await self._abort.guard(self._between(step))
        except Aborted as aborted:
            ok, why = False, f"aborted: {aborted}"
        except CockpitError as error:
            ok, why = False, one_line(error.what_and_why)
        self._note(number, step, ok, why, began_s, record)
        if record is not None and record.verdict not in GOES_ON:
            return f"step {number} was {record.verdict.value}"
        return f"step {number} failed" if ok is False and record is None else ""

    def _note(
        self,
        number: int,
        step: Step,
        ok: bool | None,
        why: str,
        began_s: float,
        record: DrillRecord | None = None,
    ) -> None:
        word = WORDS[ok]
        has_word = why.lower().startswith(f"{word}: ".lower())
        self._log(f"step {number} {word}: {why[len(word) + 2 :] if has_word else why}")
        kind = KINDS[type(step.doing)]
        self._results.append(
            StepResult(number, step.name, kind, ok, why, began_s, self._context.clock(), record)
        )

    async def _drill(self, step: Inject) -> tuple[bool | None, str, DrillRecord | None]:
        backend = self._context.backend.ref.backend
        if step.optional and (why := missing(step, backend)):
            return None, why, None
        self.experiment = self._actions.experiment(
            replace(step.plan, game_day=f"{self.day.name}/{self.id}")
        )
        if self._aborted:
            raise Aborted(self._aborted)
        record = await self._actions.drill(self.experiment)
        return record.verdict is Verdict.PASSED, f"{record.verdict.value}: {record.why}", record

    async def _between(self, step: Step) -> str:
        match step.doing:
            case Wait(seconds):
                await asyncio.sleep(seconds)
                return "waited"
            case Expect():
                return await self._expect(step.doing)
            case Scale():
                return await self._scale(step.doing)
            case Launch():
                return await self._launch(step.doing)
        raise TypeError(step)

    async def _expect(self, step: Expect) -> str:
        time_limit = Countdown(step.within_s)
        while True:
            failed = []
            for spec in step.probes:
                ok, value = await self._prober.ask(spec, (), {})
                if ok is not True:
                    failed.append(f"{hypothesis.name_of(spec)}: {value}")
            if not failed:
                return "it holds"
            if time_limit.left_s(len(step.probes) * Timeouts().probe_s) <= 0:
                raise CockpitError(f"After {in_seconds(step.within_s)}: {'; '.join(failed)}.")
            await pause(LOOK_S)
            time_limit.left_s(ROUND_S)

    async def _scale(self, step: Scale) -> str:
        done = await self._actions.scale(ScaleRequest(step.group, step.to, uid=self._uid))

        def there(store: Store) -> bool:
            group = store.groups.get(step.group)
            return group is not None and group.ready == group.desired == done.after * group.hosts

        await self._until(there, step.within_s, f"group {step.group} does not have its pods")
        return f"{done.before} → {done.after}"

    async def _launch(self, step: Launch) -> str:
        going = await self._context.ask(going_run)
        if going and not step.always:
            return f"run {going.name} continues: nothing was launched"
        spec = submission.bundled_spec(step.job, step.settings)
        job_id = spec.submission_id
        self._launched.append(job_id)  # before: an abort may come after Ray has accepted the job
        await self._actions.submit(spec)
        if step.resubmit:
            self._staying.append(asyncio.create_task(self._stay(spec, step.resubmit)))

        def begun(store: Store) -> bool:
            job, run = store.jobs.get(job_id), _run_of(store, job_id)
            if job is not None and job.status.is_over:
                raise CockpitError(f"Job {job_id} is {job.status.value}.", one_line(job.message))
            return run is not None and bool(run.checkpoints)

        await self._until(begun, step.within_s, f"job {job_id} has made no checkpoint")
        return f"{job_id} has its first checkpoint"

    async def _stay(self, spec: LaunchSpec, times: int) -> Job:
        at = len(self._launched) - 1

        def on_submit(job_id: str) -> None:
            self._launched[at] = job_id

        return await self._actions.submit_and_resubmit(spec, times, self._log, on_submit)

    async def _until(self, come: Callable[[Store], bool], within_s: float, missing: str) -> None:
        time_limit = Countdown(within_s)
        while not await self._context.ask(come):
            if time_limit.left_s(ROUND_S) <= 0:
                raise CockpitError(f"After {in_seconds(within_s)} {missing}.")
            await pause(LOOK_S)

    async def _stop_launched(self, *, wait: bool) -> None:
        for task in self._staying:
            task.cancel()
        stayed = await asyncio.gather(*self._staying, return_exceptions=True)
        for lost in [ended for ended in stayed if isinstance(ended, CockpitError)]:
            self._log(f"the job is not submitted again after a loss: {one_line(lost.what)}")
        for job_id in self._launched:

            def over(store: Store, job_id: str = job_id, unknown: bool = True) -> bool:
                job = store.jobs.get(job_id)
                return unknown if job is None else job.status.is_over

            try:
                # A job that was just resubmitted may not be listed yet.
                if wait and await self._context.ask(partial(over, unknown=False)):
                    continue
                await self._actions.stop_job(job_id)
                if wait:
                    await self._until(over, STOP_S, f"job {job_id} still runs")
            except MissingError:
                self._log(f"there is no job {job_id} to stop")
            except CockpitError as error:
                self._log(f"job {job_id} was not stopped: {one_line(error.what)}")


def missing(step: Inject, backend: str) -> str:
    """The first fault that this kind of cluster does not have, and why; empty: it has all."""
    for spec in step.plan.faults:
        if why := catalog.fault(spec.fault).obstacle(backend):
            return f"there is no {spec.fault} here: {why}"
    return ""


def _run_of(store: Store, job_id: str) -> RunView | None:
    return next((run for run in store.runs.values() if run.submission_id == job_id), None)


async def _nothing() -> str:
    return ""


WORDS = {True: "passed", False: "FAILED", None: "left out"}
KINDS = {Launch: "launch", Wait: "wait", Expect: "expect", Scale: "scale", Inject: "drill"}
