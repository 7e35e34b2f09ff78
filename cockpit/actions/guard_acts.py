"""Run the actions of the guard on a cluster.

An action holds the lease of drills, so that no other guard or drill acts at the same time. A
restart and a replacement are drills, so that their recovery is measured. Each action has a line in
the audit log with its reason.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from cockpit.actions import audit
from cockpit.actions.drills import DrillActions
from cockpit.backends.protocol import Change
from cockpit.config import paths
from cockpit.drills.engine import lease, pod_script
from cockpit.drills.engine.drill import Experiment
from cockpit.drills.engine.journal import Journal
from cockpit.drills.faults import catalog
from cockpit.drills.faults.fault import DrillContext, Fault, Order, Prepared, Undo, Victims
from cockpit.drills.faults.pods import pod_end
from cockpit.drills.plan.plan import (
    BlastRadius,
    DrillPlan,
    FaultSpec,
    TargetSpec,
    Timeouts,
    require_within,
)
from cockpit.format import in_seconds
from cockpit.guard.capture import captured
from cockpit.guard.policy import HOUR_S, Action, Decision, Target, Trigger, Trouble
from cockpit.guard.trouble import targets
from cockpit.model.drill import Verdict
from cockpit.model.error import CockpitError, ReplacedError
from cockpit.model.event import Marked
from cockpit.model.text import as_sentence, one_line
from cockpit.store.store import Store

RECOVER_S = 30.0
"""How long the lease is held after a restart, to see the first new step."""
CAPTURES_KEPT = 200
PREFIX = "guard "
"""Of the actions in the audit log."""


class GuardActions(DrillActions):
    """The actions of the guard, each with its audit line and Notice. Coroutines of the session."""

    timing = lease.TIMING
    may_have_changed = False
    """Whether the last action, where it failed, may have changed the cluster: an answer was lost,
    or only a part of it was done.
    """

    async def act(self, decision: Decision) -> str:
        """Run the action.

        Returns its result in one line. Raises CockpitError if it was not done, or if its answer was
        lost.
        """
        self.may_have_changed = False
        trouble = decision.trouble
        match decision.action:
            case Action.RESTART | Action.REPLACE:
                return await self._drilled(decision)
            case Action.CORDON:
                return await self._cordoned(decision)
            case Action.STOP:
                change = self._of_guard(decision, "RayJob", trouble.job_id, "stopped")
                return await self._leased(change, self.stop_job(trouble.job_id))
        return ""

    async def capture(self, trouble: Trouble) -> Path:
        """Save what the ranks do, and mark the recording. Changes nothing on the cluster."""
        now_s = self._clock()
        content = await self._session.ask(partial(captured, trouble=trouble, now_s=now_s))
        content["cluster"] = str(self._backend.ref)
        name = re.sub(r"[^A-Za-z0-9._-]", "_", f"{trouble.run_id}-{trouble.attempt}")[-100:]
        path = paths.state_dir() / "hangs" / f"{int(now_s)}-{name}.json"
        await asyncio.to_thread(_save, path, content)
        text = one_line(f"{trouble.trigger.value}: {trouble.sentence}", 400)
        self._session.dispatch(Marked(at_s=now_s, source="user", text=text))
        return path

    def changes_ago_s(self) -> tuple[float, ...]:
        """How long ago, in the last hour, guards of this host changed the cluster or may have."""
        return audit.done_within(PREFIX, self._backend.ref, HOUR_S)

    def notice(self, decision: Decision, line: str) -> None:
        """Show the decision among the events, and in the recording."""
        of = decision.trouble
        self._notice("Run", of.run_name, "Guard", one_line(line, 400), warning=True)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Note whether the cluster may be changed although the request inside has failed."""
        before, self.may_have_changed = self.may_have_changed, True
        try:
            yield
        except CockpitError as error:
            self.may_have_changed = before or not pod_script.has_answered(error)
            raise

    def _write(
        self, change: Change, error: CockpitError | None = None, *, is_known: bool = True
    ) -> None:
        super()._write(change, error, is_known=is_known and not self.may_have_changed)

    def _of_guard(self, decision: Decision, kind: str, name: str, after: str) -> Change:
        before = one_line(decision.trouble.sentence, 300)
        return Change(f"{PREFIX}{decision.action.value}", kind, name, before, after)

    async def _drilled(self, decision: Decision) -> str:
        """Kill the processes or pods as a drill, which measures the recovery."""
        trouble, is_restart = decision.trouble, decision.action is Action.RESTART
        pods = ", ".join(dict.fromkeys(target.pod for target in trouble.targets))
        change = self._of_guard(
            decision, "Pod", pods, "; ".join(_effect(one, is_restart) for one in trouble.targets)
        )
        named, of = ("rank-kill", trouble.targets) if is_restart else ("pod-kill", _pods(trouble))
        if lease.is_own(await self._backend.holder()):
            return await self._within_drill(decision, change)
        fault_name = f"guard-{decision.action.value}"
        is_done = False

        async def prepare(context: DrillContext, victims: Victims, order: Order) -> Prepared:
            await context.ask(partial(_require_current, trouble=trouble))
            if is_restart:
                ranks = {victim.rank for victim in victims.ranks}
                of = [target for target in trouble.targets if target.rank in ranks]
                prepared = await self._killed(of, order.used)
            else:
                prepared = await pod_end(context, victims, order)

            async def apply() -> None:
                nonlocal is_done
                with self._changing():
                    await prepared.apply()
                if not is_done:
                    is_done = True
                    await self._done(change)

            return replace(prepared, apply=apply)

        def fault(name: str) -> Fault:
            return replace(catalog.fault(named), name=name, prepare=prepare)

        specs = tuple(
            FaultSpec(
                fault_name,
                target=TargetSpec(
                    f"rank:{one.rank}" if is_restart else f"pod:{one.pod}",
                    uid=one.uid,
                    run_id=trouble.run_id,
                ),
            )
            for one in of
        )
        plan = DrillPlan(
            fault_name,
            specs,
            timeouts=Timeouts(recover_s=RECOVER_S),
            blast_radius=self._limits,
        )
        experiment = Experiment(
            self._session,
            plan,
            self._prober,
            drill_id=f"guard-{secrets.token_hex(4)}",
            fault=fault,
            timing=self.timing,
        )
        audit.require_writable()
        record = await experiment.conduct()
        if not is_done:
            error = experiment.error or CockpitError(as_sentence(record.why))
            self._write(change, error)
            raise error
        first_s = [one.first_step_s for one in record.recoveries if one.first_step_s is not None]
        what = f"done: {change.after}"
        if record.verdict is Verdict.BROKEN:
            return f"{what}; {record.why}"
        if not first_s:
            return f"{what}; no new step within {in_seconds(RECOVER_S)}"
        return f"{what}; first new step after {in_seconds(max(first_s), 1)}"

    async def _within_drill(self, decision: Decision, change: Change) -> str:
        """Act while a drill of this process holds the lease, as in a game day with a guard.

        No new drill is started: the running one measures the recovery.
        """
        trouble = decision.trouble
        with self._audited(change):
            await self._session.ask(partial(_require_current, trouble=trouble, limit=self._limits))
            if decision.action is Action.RESTART:
                await (await self._killed(trouble.targets, {})).apply()
            else:
                for target in _pods(trouble):
                    with self._changing():
                        await self._backend.delete_pod(target.pod, uid=target.uid, grace_s=0.0)
        await self._done(change)
        return f"done: {change.after}"

    async def _killed(self, of: Sequence[Target], parameters: Mapping[str, str]) -> Prepared:
        """SIGKILL these ranks, in the pods of their UIDs."""
        backend, hits = self._backend, []
        for target in of:
            what = f"{_effect(target, True)}: there is no such process."
            pid = str(target.pid)
            found = await pod_script.run(
                backend, target.pod, "inspect", "rank", pid, what=what, uid=target.uid
            )
            hits.append((target, found))

        async def apply() -> None:
            for target, process in hits:
                what = f"{_effect(target, True)}: it failed."
                with self._changing():
                    await pod_script.run(
                        backend, target.pod, "kill", process, what=what, uid=target.uid
                    )

        lines = tuple(f"{_effect(target, True)}." for target, _ in hits)
        return Prepared(lines, apply, parameters=parameters)

    async def _cordoned(self, decision: Decision) -> str:
        target = decision.trouble.targets[0]
        change = self._of_guard(
            decision, "Node", target.node, f"cordoned; undo: cockpit uncordon {target.node}"
        )
        return await self._leased(change, self._cordon(target))

    async def _cordon(self, target: Target) -> None:
        """The journal has the undo until it is known that the node is cordoned."""
        journal, text = Journal(), f"uncordon {target.node}"
        undo = Undo("uncordon", text, uid=target.node_uid, name=target.node)
        entry = journal.write(
            f"guard-{secrets.token_hex(4)}.1",
            "cordon",
            target.node,
            self._backend.ref,
            [undo],
            self._clock(),
        )
        try:
            await self.cordon(target.node, True, uid=target.node_uid)
        except CockpitError as error:
            if pod_script.has_answered(error):
                journal.forget(entry)
            raise
        # An earlier attempt may have cordoned it although its answer was lost. Its entry would make
        # the next start of cockpit uncordon the node.
        journal.forget_attempts(entry)

    async def _leased(self, change: Change, work: Coroutine[Any, Any, None]) -> str:
        """Do the work while no other guard and no drill acts."""

        def ignore(line: str) -> None:
            """The work is over before the lease can be lost."""

        try:
            with self._audited(change):
                async with lease.held(
                    self._backend,
                    f"guard-{secrets.token_hex(4)}",
                    guard=_plain,
                    on_wait=ignore,
                    note=ignore,
                    lost=ignore,
                    timing=self.timing,
                ):
                    with self._changing():
                        await work
        finally:
            work.close()
        await self._done(change)
        return f"done: {change.after}"


def _effect(target: Target, is_restart: bool) -> str:
    where = f"rank {target.rank} (process {target.pid} in pod {target.pod})"
    return f"SIGKILL {where}" if is_restart else f"delete pod {target.pod} of rank {target.rank}"


def _pods(trouble: Trouble) -> tuple[Target, ...]:
    """One target for each pod."""
    return tuple({target.pod: target for target in trouble.targets}.values())


def _require_current(store: Store, trouble: Trouble, limit: BlastRadius | None = None) -> None:
    """Raises CockpitError unless the store still shows the same processes on the same pods, and
    NotAllowedError if these are more pods than the limit.
    """
    run = store.runs.get(trouble.run_id)
    attempt = run.attempt if run is not None else None
    what = f"Run {trouble.run_name} has changed, so nothing was done."
    if run is None or attempt is None or run.state.is_over:
        raise CockpitError(what, "It is over.")
    if trouble.trigger is Trigger.HANG:
        if attempt.number != trouble.attempt or attempt.ended_s is not None:
            raise CockpitError(what, f"Attempt {trouble.attempt} has ended.")
        if not run.hang.dumps:
            raise CockpitError(what, "It makes progress again.")
        now = {one.rank: one for one in targets(store, attempt, [t.rank for t in trouble.targets])}
        for target in trouble.targets:
            found = now.get(target.rank)
            if found is None or (found.pid, found.pod) != (target.pid, target.pod):
                raise CockpitError(what, f"Rank {target.rank} has another process.")
    for target in trouble.targets:
        pod = store.pods.get(target.pod)
        if pod is None or pod.uid != target.uid:
            raise ReplacedError("Pod", target.pod)
    if limit is not None:
        require_within(store, [store.pods[target.pod] for target in _pods(trouble)], limit)


async def _plain(work: Coroutine[Any, Any, None]) -> None:
    await work


def _save(path: Path, content: dict[str, Any]) -> None:
    paths.make_private(path.parent)
    paths.replace_file(path, json.dumps(content, indent=1))
    for old in sorted(path.parent.glob("*.json"))[:-CAPTURES_KEPT]:
        old.unlink(missing_ok=True)
