"""Asking a drill's hypothesis and its abort conditions, each within its time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cockpit.drills.engine.countdown import Countdown
from cockpit.drills.engine.drill_log import DrillLog
from cockpit.drills.faults.fault import DrillContext
from cockpit.drills.plan.plan import DrillPlan, ProbeSpec, When
from cockpit.drills.probes.external import Prober
from cockpit.drills.probes.hypothesis import name_of
from cockpit.format import in_seconds
from cockpit.model.drill import ProbeResult, Stage
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line
from cockpit.sources.polling.pause import pause
from cockpit.store.selectors import going_run

EVERY_S = 2.0
PAUSE_LATE_S = 1.0
"""How late a pause may end while the process runs."""
"""Between two questions of the same probe."""


class ProbeRunner:
    """Failures are returned as text; empty, where all of it holds."""

    def __init__(
        self, context: DrillContext, prober: Prober, plan: DrillPlan, log: DrillLog
    ) -> None:
        self._context, self._prober = context, prober
        self._plan, self._log = plan, log
        self._last: dict[str, bool | None] = {}

    async def holds_meanwhile(self) -> str:
        """The probes while a fault lasts, once. Only changes are emitted."""
        answers = await self._answers("during")
        news = [a for a in answers if a.probe not in self._last or self._last[a.probe] != a.ok]
        self._last.update((answer.probe, answer.ok) for answer in answers)
        self._log_results(news)
        # A probe that is unavailable for a short time, as with a lost connection, has not failed.
        return _failed([answer for answer in answers if answer.ok is not None])

    async def holds_before(self) -> str:
        """Evaluate the probes before. Only their last results are emitted.

        A running probe without a result is retried for some time, since a comparison requires a
        value before.
        """
        time_limit = Countdown(self._plan.timeouts.before_s)
        while True:
            answers = await self._answers("before")
            unknown = [answer for answer in answers if answer.ok is None]
            left_s = time_limit.left_s(len(answers) * self._plan.timeouts.probe_s)
            may_come = unknown and all(answer.ok is not False for answer in answers)
            if not may_come or left_s <= 0 or not await self._context.ask(going_run):
                self._log_results(answers)
                return _failed(answers)
            self._log.stage(Stage.BEFORE, f"no steady state yet: {_failed(unknown)}")
            await self._pause(time_limit, left_s)

    async def holds_again(self) -> str:
        """Evaluate the probes after. Only their last results are emitted.

        Each has some time to become true, since a recovered run is not at full speed with its first
        step.
        """
        time_limit = Countdown(self._plan.timeouts.after_s)
        while True:
            answers = await self._answers("after")
            left_s = time_limit.left_s(len(answers) * self._plan.timeouts.probe_s)
            if left_s <= 0 or all(answer.ok for answer in answers):
                self._log_results(answers)
                return _failed(answers)
            await self._pause(time_limit, left_s)

    async def _pause(self, time_limit: Countdown, left_s: float) -> None:
        """If the process is stopped, then most likely in it."""
        await pause(min(EVERY_S, left_s))
        time_limit.left_s(EVERY_S + PAUSE_LATE_S)

    async def abort_conditions(self) -> str:
        """Return the first probe that fails. An unavailable one aborts nothing."""
        for spec in self._plan.abort:
            answer = await self._answer(spec, "abort")
            if self._last.get(answer.probe, True) != answer.ok:
                self._log_results([answer])
            self._last[answer.probe] = answer.ok
            if answer.ok is False:
                return f"{answer.probe} does not hold: {answer.value}"
        return ""

    async def _answers(self, when: When) -> list[ProbeResult]:
        specs = [spec for spec in self._plan.hypothesis if when in spec.when]
        return [await self._answer(spec, when) for spec in specs]

    def _log_results(self, answers: Sequence[ProbeResult]) -> None:
        for answer in answers:
            self._log.probed(answer)

    async def _answer(self, spec: ProbeSpec, when: str) -> ProbeResult:
        limit_s = self._plan.timeouts.probe_s
        log = self._log
        try:
            async with asyncio.timeout(limit_s):
                ok, value = await self._prober.ask(spec, log.drills, log.readings)
        except TimeoutError:
            ok, value = None, f"no answer within {in_seconds(limit_s)}"
        except CockpitError as error:
            ok, value = None, error.what_and_why
        return ProbeResult(name_of(spec), when, ok, one_line(value), self._context.clock())


def _failed(answers: Sequence[ProbeResult]) -> str:
    return next((f"{a.probe}: {a.value}" for a in answers if a.ok is not True), "")
