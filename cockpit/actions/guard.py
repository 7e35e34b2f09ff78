"""The guard of a cluster: it follows the store, decides by its policy, and acts."""

from __future__ import annotations

import time
from collections.abc import Callable

from cockpit.actions.guard_acts import GuardActions
from cockpit.guard.policy import Action, Decision, Memory, Policy
from cockpit.guard.policy import decide as decision_on
from cockpit.guard.trouble import Failures, Judge, hangs
from cockpit.insight.causes.verdict import causes_of_run
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line
from cockpit.session.session import Session
from cockpit.sources.polling.pause import pause
from cockpit.store.store import Store

POLL_S = 1.0


class Guard:
    """Follows one cluster. `watch` is a coroutine of the session; `end` may be called anywhere."""

    steady_s = staticmethod(time.monotonic)
    """Of the budget and the retries: the clock of the session may be set."""

    def __init__(
        self,
        session: Session,
        actions: GuardActions,
        policy: Policy,
        report: Callable[[str], None],
        *,
        run: str = "",
        judge: Judge = causes_of_run,
        poll_s: float = POLL_S,
    ) -> None:
        """`report` is given one line for each decision. `run`: only this one, by id or name."""
        self.policy = policy
        self._session, self._actions, self._report = session, actions, report
        self._run, self._poll_s = run, poll_s
        self._failures = Failures(judge, session.clock())
        now_s = self.steady_s()
        self._memory = Memory(changes_s=tuple(now_s - ago for ago in actions.changes_ago_s()))
        self._is_ended = False

    def end(self) -> None:
        """End `watch` after the act that it does now."""
        self._is_ended = True

    async def watch(self) -> None:
        while not self._is_ended:
            for decision in await self._session.ask(self.decide):
                await self._carry_out(decision)
            await pause(self._poll_s)

    def decide(self, store: Store) -> list[Decision]:
        """Decide what to do now: at most one change of the cluster per call."""
        now_s = self._session.clock()
        self._failures.see(store, now_s)
        found = hangs(store, now_s, self._run)
        found += self._failures.repeated(store, now_s, self.policy.failures, self._run)
        self._memory = self._memory.present({trouble.key for trouble in found})
        decisions: list[Decision] = []
        for trouble in found:
            is_changing = any(one.action.is_change for one in decisions)
            decision = decision_on(self.policy, trouble, self._memory, self.steady_s())
            if decision is not None and not (is_changing and decision.action.is_change):
                decisions.append(decision)
        return decisions

    async def _carry_out(self, decision: Decision) -> None:
        trouble, action = decision.trouble, decision.action
        self._memory = self._memory.decided(decision)
        head = f"{action.value}, run {trouble.run_name}, attempt {trouble.attempt}"
        dry = " (dry run)" if decision.is_dry else ""
        self._log(decision, f"{head}{dry}: {trouble.sentence} Reason: {decision.reason}.")
        if action is Action.OBSERVE or decision.is_dry:
            return
        try:
            await self._capture(decision, head)
            if action.is_change:
                self._log(decision, f"{head}: {await self._actions.act(decision)}")
        except CockpitError as error:
            may_be_done = action.is_change and self._actions.may_have_changed
            self._memory = self._memory.failed_on(
                decision, self.steady_s(), may_have_changed=may_be_done
            )
            result = "MAY be done" if may_be_done else "NOT done"
            self._log(decision, f"{head}: {result}: {error.what_and_why}")
        else:
            self._memory = self._memory.acted_on(decision, self.steady_s())

    async def _capture(self, decision: Decision, head: str) -> None:
        """Raise CockpitError only if no other action is left."""
        try:
            path = await self._actions.capture(decision.trouble)
        except (CockpitError, OSError) as error:
            if not decision.action.is_change:
                raise CockpitError("The capture cannot be written.", str(error)) from error
            self._log(decision, f"{head}: not captured: {error}")
        else:
            self._log(decision, f"{head}: captured in {path}")

    def _log(self, decision: Decision, line: str) -> None:
        self._report(one_line(line, 600))
        self._actions.notice(decision, line)
