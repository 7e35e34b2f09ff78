"""The guard from the store to the change of the cluster, on a scripted backend."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from cockpit.actions import audit
from cockpit.actions import guard_acts as module
from cockpit.actions.guard import Guard
from cockpit.actions.guard_acts import GuardActions
from cockpit.backends import file_lease
from cockpit.backends.protocol import ExecResult
from cockpit.config import paths
from cockpit.drills.engine import lease
from cockpit.drills.engine.journal import Journal
from cockpit.drills.plan.plan import BlastRadius
from cockpit.guard.policy import HOUR_S, RETRY_S, Action, Policy, Target
from cockpit.guard.trouble import JUDGED, Failures
from cockpit.insight.causes.types import Advice, Category, Cause
from cockpit.insight.causes.verdict import causes_of_run
from cockpit.insight.hang.types import Confidence
from cockpit.model.cluster import ClusterRef, KubernetesNode, Pod
from cockpit.model.error import CockpitError, LeaseHeldError, NotAllowedError, UnreachableError
from cockpit.model.event import (
    AttemptEnded,
    Event,
    KubernetesNodesListed,
    Marked,
    Notice,
    PodsListed,
    RanksDumped,
    RunSeen,
    SourceHealth,
)
from cockpit.model.hang import Collective, Dump, Reached
from cockpit.model.run import RunState
from cockpit.session.session import Session
from cockpit.store.run import RunView
from cockpit.store.store import Store
from tests.drills.simulated_context import ScriptedContext
from tests.events import HEAD, ONE, REF, RUN, THREE, TWO, before_the_kill, started, the_recovery
from tests.insight.test_hang import IDLE, LOOP, REDUCE, REPORT, WORLD, dump
from tests.local_cluster import until
from tests.simulated_backend import ScriptedBackend

PROCESS = "101:777"
PODS = (HEAD, replace(ONE, uid="uid-1"), replace(TWO, uid="uid-2"))
RESTART = Policy(hang=Action.RESTART)


@dataclass(slots=True)
class Cluster(ScriptedBackend):
    """Responds to the scripts of `restart`; the run recovers after a kill."""

    context: ScriptedContext | None = None
    missing: bool = False
    """The process of the rank does not exist."""

    async def exec(self, pod: str, argv: Sequence[str], *, uid: str = "") -> ExecResult:
        self._require(pod, uid)
        self.uids.append(uid)
        if argv[-2] == "rank":
            self.asked.append(("inspect", pod, argv[-1]))
            if self.missing:
                return ExecResult(1, "", "process 101 has ended")
            return ExecResult(0, PROCESS, "")
        self.asked.append(("kill", pod, argv[-1]))
        assert self.context is not None
        for event in the_recovery()[2:]:
            self.context.dispatch(event)
        return ExecResult(0, "", "")


def hang(rank: int = 1, **values: object) -> RanksDumped:
    """The other rank waits in a collective that this one has not called."""
    groups = (replace(WORLD, members=(0, 1)),)
    dumps: tuple[Dump, ...] = (
        dump(1 - rank, 1, 3, waits=True, **values),
        dump(rank, 0, 2, waits=False, **values),
    )
    return RanksDumped(
        at_s=100.0,
        source="telemetry",
        run_id=RUN,
        attempt=1,
        dumps=dumps,
        stacks=(LOOP, REDUCE, REPORT, IDLE),
        groups=groups,
    )


def seen(pods: Sequence[Pod] = PODS, max_failures: int | None = 5) -> list[Event]:
    run = RunSeen(
        at_s=99.0,
        source="telemetry",
        run_id=RUN,
        name="demo",
        state=RunState.RUNNING,
        max_failures=max_failures,
    )
    return [
        *before_the_kill(), run, PodsListed(at_s=99.0, source="backend", pods=tuple(pods))
    ]  # fmt: skip


@dataclass(slots=True)
class Watched:
    context: ScriptedContext
    cluster: Cluster
    guard: Guard
    lines: list[str] = field(default_factory=list)

    async def poll(self, times: int = 1) -> None:
        for _ in range(times):
            for decision in self.guard.decide(self.context.store):
                await self.guard._carry_out(decision)

    async def see(self, events: Sequence[Event]) -> None:
        """As they arrive, until the logs of the last end are read."""
        for event in events:
            self.context.dispatch(event)
            await self.poll()
        self.context.clock_step_s += 30.0
        await self.poll(times=2)

    def killed(self) -> list[tuple[str, ...]]:
        return [ask for ask in self.cluster.asked if ask[0] in ("kill", "delete_pod")]


def watched(
    policy: Policy = RESTART, events: Sequence[Event] | None = None, **more: Any
) -> Watched:
    cluster = Cluster(ref=more.pop("ref", REF))
    context = ScriptedContext([*seen(), hang()] if events is None else events, cluster)
    cluster.context = context
    session = cast(Session, context)
    lines: list[str] = []
    guard = Guard(session, GuardActions(session), policy, lines.append, **more)
    return Watched(context, cluster, guard, lines)


def first_new_step_s(line: str) -> float:
    """Return the seconds at the end of `line`: from the act to 118.5, when the first step ends."""
    found = re.search(r"first new step after (\d+\.\d) s$", line)
    assert found is not None, line
    return float(found[1])


def audited() -> list[dict[str, Any]]:
    if not audit.path().exists():
        return []
    return [json.loads(line) for line in audit.path().read_text().splitlines()]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECOVER_S", 0.3)


async def test_hang_leads_to_exactly_one_kill_with_lease_and_audit_line() -> None:
    of = watched()
    await of.poll(times=3)
    assert of.killed() == [("kill", TWO.name, PROCESS)]
    asked = [ask[0] for ask in of.cluster.asked]
    assert asked.index("hold") < asked.index("inspect") < asked.index("kill")
    assert "release" in asked
    assert set(of.cluster.uids) == {"uid-2"}
    [line] = audited()
    assert (line["action"], line["target"], line["result"]) == (
        "guard restart",
        TWO.name,
        "done",
    )
    assert line["before"].startswith("Rank 1 never called all_reduce #3")
    assert line["after"] == f"SIGKILL rank 1 (process 101 in pod {TWO.name})"
    [drill] = of.context.store.drills
    assert first_new_step_s(of.lines[-1]) == pytest.approx(118.5 - drill.injected_s, abs=0.06)
    assert (drill.fault, drill.ranks, drill.attempt) == ("guard-restart", (1,), 1)
    [cause] = causes_of_run(of.context.store, of.context.store.runs[RUN])
    assert cause.category is Category.HANG
    assert cause.sentence.endswith("made the run hang until the guard ended it.")
    assert any(isinstance(event, Notice) and event.reason == "Guard" for event in of.context.told)


async def test_hang_is_captured_before_the_restart() -> None:
    of = watched()
    await of.poll()
    [path] = (paths.state_dir() / "hangs").glob("*.json")
    kept = json.loads(path.read_text())
    assert kept["verdict"]["ranks"] == [1]
    assert kept["ranks"]["1"]["stacks"]["training"] == ["loop (train.py:11)"]
    assert kept["text"][0] == kept["sentence"]
    assert path.stat().st_mode & 0o777 == 0o600
    [mark] = [event for event in of.context.told if isinstance(event, Marked)]
    assert mark.text.startswith("hang: Rank 1 never called")


async def test_capture_and_observation_change_nothing() -> None:
    for action in (Action.OBSERVE, Action.CAPTURE):
        of = watched(Policy(hang=action))
        await of.poll(times=3)
        assert not of.cluster.asked
        assert len(of.lines) == (1 if action is Action.OBSERVE else 2)
    assert not audited()


async def test_dry_run_names_the_change_and_does_nothing() -> None:
    of = watched(replace(RESTART, dry_run=True))
    await of.poll(times=3)
    assert not of.cluster.asked
    [line] = of.lines
    assert line.startswith("restart, run demo, attempt 1 (dry run): Rank 1 never called")


@pytest.mark.parametrize("ahead_s", [0.0, 7200.0, -7200.0])
async def test_budget_holds_after_the_guard_was_started_again(
    ahead_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the clock of this host, which the audit log has, is not the cluster's."""
    monkeypatch.setattr(audit, "time", SimpleNamespace(time=lambda: 100.0 + ahead_s))
    await watched(replace(RESTART, budget=1)).poll()
    again = watched(replace(RESTART, budget=1))
    await again.poll()
    assert not again.killed()
    assert "the budget of 1 change per hour is used up" in again.lines[0]
    other = watched(replace(RESTART, budget=1), ref=ClusterRef("local", "other"))
    await other.poll()
    assert other.killed(), "each cluster has its own"


async def test_low_confidence_never_acts() -> None:
    of = watched(events=[*seen(), hang(cpu_percent=90.0)])
    await of.poll(times=3)
    assert not of.cluster.asked
    [line] = of.lines
    assert "confidence is low, and restart needs high" in line


async def test_stale_telemetry_never_acts() -> None:
    failed = SourceHealth(at_s=100.0, source="telemetry", ok=False, error="no answer")
    of = watched(events=[*seen(), hang(), failed])
    await of.poll()
    assert (of.cluster.asked, of.lines) == ([], [])


async def test_run_that_may_not_restart_is_left_alone() -> None:
    for limit in (0, None):
        of = watched(events=[*seen(max_failures=limit), hang()])
        await of.poll()
        assert not of.cluster.asked
        assert "Reason: run demo " in of.lines[0]


async def test_hang_is_captured_and_reported_without_the_right_to_exec(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The right was withdrawn after the start, which checks it."""

    async def denied(*_: object, **more: object) -> ExecResult:
        raise NotAllowedError("You cannot exec in pod t.", "it may not create pods/exec")

    monkeypatch.setattr(Cluster, "exec", denied)
    of = watched()
    await of.poll()
    assert not of.killed()
    assert [line for line in of.lines if "captured in" in line]
    assert "NOT done: You cannot exec in pod" in of.lines[-1]
    assert of.lines[-1].endswith("it may not create pods/exec.")
    assert [line["result"] for line in audited()] == ["failed"]
    assert not of.guard._memory.changes_s, "it used up none of the budget"


EXEC = Cluster.exec


async def killed_without_answer(
    of: Cluster, pod: str, argv: Sequence[str], *, uid: str = ""
) -> ExecResult:
    """The process of the rank is found, and then the answer of the kill is lost."""
    if argv[-2] == "rank":
        return await EXEC(of, pod, argv, uid=uid)
    raise UnreachableError("The API server cannot be reached.", "no answer in time")


async def test_kill_whose_answer_was_lost_costs_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "exec", killed_without_answer)
    for within_drill in (False, True):
        of = watched(replace(RESTART, budget=1))
        if within_drill:
            of.cluster.held_by = lease.holder_of("drill-1", os.getpid())
        await of.poll()
        assert len(of.guard._memory.changes_s) == 1
        assert "restart, run demo, attempt 1: MAY be done: " in of.lines[-1]
        assert audited()[-1]["result"] == "unknown"
        audit.path().unlink()  # a later guard would count it


async def test_lost_answer_costs_budget_after_a_restart_of_the_guard_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Cluster, "exec", killed_without_answer)
        await watched(replace(RESTART, budget=1)).poll()
    assert [line["result"] for line in audited()] == ["unknown"]
    later = watched(replace(RESTART, budget=1))
    await later.poll()
    assert not later.killed()
    assert len(later.guard._memory.changes_s) == 1


async def test_request_that_was_lost_before_the_kill_costs_no_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def lost(*_: object, **more: object) -> ExecResult:
        raise UnreachableError("The API server cannot be reached.", "no answer in time")

    monkeypatch.setattr(Cluster, "exec", lost)
    of = watched()
    await of.poll()
    assert not of.guard._memory.changes_s
    assert "NOT done" in of.lines[-1]


@pytest.mark.parametrize("answered", [True, False])
async def test_replacement_of_two_pods_that_fails_at_the_second_costs_budget(
    answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    error: CockpitError = NotAllowedError("no") if answered else UnreachableError("no answer")
    delete = Cluster.delete_pod

    async def second_fails(of: Cluster, pod: str, *, uid: str, grace_s: float) -> None:
        if any(ask[0] == "delete_pod" for ask in of.asked):
            raise error
        await delete(of, pod, uid=uid, grace_s=grace_s)

    monkeypatch.setattr(Cluster, "delete_pod", second_fails)
    of = watched(Policy(hang=Action.REPLACE))
    of.guard._actions._limits = BlastRadius(max_share=1.0)
    of.cluster.held_by = lease.holder_of("drill-1", os.getpid())
    [decision] = of.guard.decide(of.context.store)
    targets = (*decision.trouble.targets, Target(0, 100, ONE.name, "uid-1"))
    trouble = replace(decision.trouble, targets=targets)
    await of.guard._carry_out(replace(decision, trouble=trouble))
    assert len(of.guard._memory.changes_s) == 1


async def test_process_that_has_ended_is_not_killed() -> None:
    of = watched()
    of.cluster.missing = True
    await of.poll(times=3)
    assert not of.killed()
    [line] = audited()
    assert (line["action"], line["result"]) == ("guard restart", "failed")
    assert "NOT done" in of.lines[-1]
    assert len([ask for ask in of.cluster.asked if ask[0] == "inspect"]) == 1, "not at once again"


async def test_rank_that_no_longer_exists_is_observed() -> None:
    of = watched(events=[*seen(), replace(hang(), dumps=(), silent=(7,)), dumped_rank(7)])
    await of.poll()
    assert not of.killed()
    assert "no process of the cause is known" in of.lines[0]


def dumped_rank(number: int) -> RanksDumped:
    """A rank that the attempt does not have, as the only cause."""
    groups = (replace(WORLD, members=(0, number)),)
    dumps = (dump(0, 1, 3, waits=True), dump(number, 0, 2, waits=False))
    return replace(hang(), dumps=dumps, groups=groups)


async def test_attempt_that_ended_before_the_lease_was_held_is_left_alone() -> None:
    of = watched()
    [decision] = of.guard.decide(of.context.store)
    for event in the_recovery()[3:]:
        of.context.dispatch(event)
    await of.guard._carry_out(decision)
    assert not of.killed()
    assert "Attempt 1 has ended" in of.lines[-1]


async def test_pod_of_another_uid_is_left_alone() -> None:
    for policy in (RESTART, Policy(hang=Action.REPLACE)):
        seen_by_watch = watched(policy)
        [decision] = seen_by_watch.guard.decide(seen_by_watch.context.store)
        changed = (*PODS[:2], replace(TWO, uid="uid-3"))
        seen_by_watch.context.dispatch(PodsListed(at_s=101.0, source="backend", pods=changed))
        await seen_by_watch.guard._carry_out(decision)
        not_yet_seen = watched(policy)
        not_yet_seen.cluster.replaced = {TWO.name: "uid-3"}
        await not_yet_seen.poll()
        for of in (seen_by_watch, not_yet_seen):
            assert not of.killed()
            assert "was replaced" in of.lines[-1]


async def test_replace_deletes_the_pod_with_its_uid() -> None:
    of = watched(Policy(hang=Action.REPLACE))
    await of.poll(times=2)
    assert of.killed() == [("delete_pod", TWO.name, "0")]
    assert of.cluster.uids == ["uid-2"]
    assert audited()[0]["action"] == "guard replace"


def called(*ops: str, attempt: int = 1) -> RanksDumped:
    """Each rank waits in the first collective of the group, and called this operation."""
    dumps = tuple(
        dump(
            rank, 1, 1, waits=True, collectives=(Collective(0, 1, op, "float32 [4]", 31.0),)
        )
        for rank, op in enumerate(ops)
    )  # fmt: skip
    return replace(hang(), dumps=dumps, attempt=attempt)


def deadlock() -> RanksDumped:
    """Each rank waits for the other, in the first collectives of two groups."""
    dumps = tuple(
        dump(
            rank, 1, 1, waits=True,
            reached=(Reached(rank, 1, 0), Reached(1 - rank, 0, 0)),
            collectives=(Collective(rank, 1, "all_reduce", "float32 [4]", 31.0),),
        )
        for rank in (0, 1)
    )  # fmt: skip
    world = replace(WORLD, members=(0, 1))
    return replace(hang(), dumps=dumps, groups=(world, replace(world, name="1")))


@pytest.mark.parametrize(
    ("dumped", "kind"),
    [
        (called("all_reduce", "all_reduce"), "network"),
        (called("all_reduce", "broadcast"), "mismatched collective"),
        (deadlock(), "deadlock"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_replace_deletes_no_pod_where_no_single_rank_is_the_cause(
    dumped: RanksDumped, kind: str
) -> None:
    of = watched(Policy(hang=Action.REPLACE), [*seen(), dumped])
    await of.poll()
    assert not of.killed()
    assert f"no single rank is the cause of this hang ({kind})" in of.lines[-1]


@pytest.mark.parametrize(
    ("ops", "kills"), [(("all_reduce", "broadcast"), 0), (("all_reduce", "all_reduce"), 1)]
)
async def test_restart_is_not_repeated_where_the_code_hangs_again(
    ops: tuple[str, str], kills: int
) -> None:
    """A network that failed twice may work the third time."""
    again = [
        AttemptEnded(at_s=101.0, source="telemetry", run_id=RUN, attempt=1, reason="died"),
        started(102.0, 2, ONE, TWO),
        called(*ops, attempt=2),
    ]
    of = watched(RESTART, [*seen(), called(*ops), *again])
    await of.poll()
    assert len(of.killed()) == kills
    expected = "attempt 1 hung in the same way (mismatched collective), so a restart would hang"
    assert kills or expected in of.lines[-1]


async def test_second_guard_is_refused_while_the_first_acts() -> None:
    class Held(Cluster):
        async def hold(self, holder: str, ttl_s: float, *, expired: str = "") -> None:
            raise LeaseHeldError(
                "Another drill runs.", "Held by a guard.", "", renewal="1", ttl_s=60, current=True
            )

    of = watched()
    held = Held(ref=REF, context=of.context)
    of.context.backend = held
    session = cast(Session, of.context)
    of.guard = Guard(session, GuardActions(session), RESTART, of.lines.append)
    await of.poll()
    assert not held.asked
    assert "Another drill runs" in of.lines[-1]
    assert audited()[-1]["result"] == "failed"


async def test_two_guards_at_once_kill_once() -> None:
    class Leased(Cluster):
        async def hold(self, holder: str, ttl_s: float, *, expired: str = "") -> None:
            file_lease.hold(str(self.ref), holder, ttl_s, expired)

        async def release(self, holder: str) -> None:
            file_lease.release(str(self.ref), holder)

    of = watched()
    cluster = Leased(ref=REF, context=of.context)
    of.context.backend = cluster
    session = cast(Session, of.context)
    lines: list[str] = []
    guards = [Guard(session, GuardActions(session), RESTART, lines.append) for _ in range(2)]
    chosen = [guard.decide(of.context.store) for guard in guards]
    await asyncio.gather(
        *(guard._carry_out(one) for guard, (one,) in zip(guards, chosen, strict=True))
    )
    assert [ask[0] for ask in cluster.asked].count("kill") == 1
    [refused] = [line for line in lines if "NOT done" in line]
    assert "Another drill runs" in refused
    assert "(guard-" in refused, "it names the other guard"
    assert sorted(line["result"] for line in audited()) == ["done", "failed"]
    later = [guard.decide(of.context.store) for guard in guards]
    assert later == [[], []], "the run does not hang any more"


@pytest.mark.parametrize("action", [Action.RESTART, Action.REPLACE])
async def test_guard_acts_within_a_drill_of_its_own_process(action: Action) -> None:
    """As in a game day: the drill holds the lease, and measures the recovery."""
    of = watched(Policy(hang=action))
    of.cluster.held_by = lease.holder_of("drill-1", os.getpid())
    await of.poll(times=2)
    assert len(of.killed()) == 1
    assert not [ask for ask in of.cluster.asked if ask[0] in ("hold", "release")]
    assert not of.context.store.drills, "its act is no fault of its own"
    [line] = audited()
    assert (line["action"], line["result"]) == (f"guard {action.value}", "done")


async def test_guard_is_refused_within_a_drill_that_may_hit_no_more_pods() -> None:
    of = watched()
    of.cluster.held_by = lease.holder_of("drill-1", os.getpid())
    of.guard._actions._limits = BlastRadius(max_pods=0)
    await of.poll()
    assert not of.killed()
    assert "Its limit is 0" in of.lines[-1]


async def test_guard_follows_until_it_is_ended() -> None:
    of = watched(poll_s=0.0)
    watching = asyncio.create_task(of.guard.watch())
    await until(lambda: bool(of.killed()))
    of.guard.end()
    await watching
    [drill] = of.context.store.drills
    assert first_new_step_s(of.lines[-1]) == pytest.approx(118.5 - drill.injected_s, abs=0.06), (
        "the present act is completed"
    )


# -- repeated failures

NODE = KubernetesNode("node-a", ready=True, uid="uid-a")


def failures(count: int, reason: str = "rank 1: its process died") -> list[Event]:
    """That many attempts that ended on the same pods, the last of them after 90 s."""
    pods = tuple(replace(pod, host=NODE.name) for pod in PODS)
    events: list[Event] = [
        *seen(pods), KubernetesNodesListed(at_s=99.0, source="backend", nodes=(NODE,))
    ]  # fmt: skip
    for number in range(1, count + 1):
        events += [
            started(100.0 + number, number, *pods[1:]),
            AttemptEnded(
                at_s=100.5 + number, source="telemetry", run_id=RUN, attempt=number, reason=reason
            ),
        ]
    return events


def user_error(store: Store, run: RunView) -> Sequence[Cause]:
    """A ValueError ended each of the attempts."""
    return [
        replace(cause, advice=Advice.STOP, category=Category.USER) for cause in died(store, run)
    ]


def died(store: Store, run: RunView) -> Sequence[Cause]:
    """Rank 1 ended each of the attempts."""
    return [
        Cause(
            Category.NODE, "Rank 1 ended.", Confidence.HIGH, Advice.RESTART, "", run.id, number,
            ranks=(1,),
        )
        for number in sorted(run.attempts)
    ]  # fmt: skip


async def after(policy: Policy, count: int, **more: Any) -> Watched:
    """A guard that observed each of the attempts."""
    of = watched(policy, (), **({"judge": died} | more))
    await of.see(failures(count))
    return of


async def test_node_is_cordoned_after_the_third_failure_on_it() -> None:
    policy = Policy(repeated_failure=Action.CORDON)
    of = await after(policy, 2)
    assert not of.cluster.asked
    of = await after(policy, 4)
    assert [ask for ask in of.cluster.asked if ask[0] == "cordon"] == [("cordon", "node-a", "True")]
    cordon, by_guard = audited()
    assert (cordon["action"], by_guard["action"]) == ("cordon", "guard cordon")
    assert by_guard["after"] == "cordoned; undo: cockpit uncordon node-a"
    assert not Journal().entries(), "an act that is complete is not undone by the next start"


async def test_node_with_the_name_of_a_deleted_one_has_failures_of_its_own() -> None:
    policy = Policy(repeated_failure=Action.CORDON)
    of = await after(policy, 4)
    other = KubernetesNodesListed(at_s=105.0, source="backend", nodes=(replace(NODE, uid="uid-b"),))
    await of.see([other, *failures(6)[-4:]])
    assert "2 failures on node node-a, 3 are needed" in of.lines[-1]
    await of.see([other, *failures(8)[-4:]])
    cordoned = [entry["after"] for entry in audited() if entry["action"] == "guard cordon"]
    assert len(cordoned) == 2, "the guard acts on the failures of each node"


def of_all(store: Store, run: RunView) -> Sequence[Cause]:
    """Both ranks ended each of the attempts."""
    return [replace(cause, ranks=(0, 1)) for cause in died(store, run)]


async def test_pod_is_not_replaced_for_failures_of_ranks_on_several_pods() -> None:
    of = await after(Policy(repeated_failure=Action.REPLACE), 4, judge=of_all)
    assert not of.cluster.asked
    assert "0 failures on pod" in of.lines[-1]


async def test_interrupted_cordon_is_in_the_journal() -> None:
    class Cut(Cluster):
        async def cordon(self, node: str, cordoned: bool, *, uid: str = "") -> None:
            raise asyncio.CancelledError

    of = watched(Policy(repeated_failure=Action.CORDON), ())
    of.context.backend = Cut(ref=REF, context=of.context)
    session = cast(Session, of.context)
    of.guard = Guard(session, GuardActions(session), of.guard.policy, of.lines.append, judge=died)
    with pytest.raises(asyncio.CancelledError):
        await of.see(failures(3))
    [entry] = Journal().entries()
    [undo] = entry.undo
    assert (undo.verb, undo.name, undo.uid) == ("uncordon", "node-a", "uid-a")


async def test_cordon_whose_answer_was_lost_is_not_undone_after_it_succeeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Lost(Cluster):
        """Carries out each cordon. The answer of the first is lost."""

        async def cordon(self, node: str, cordoned: bool, *, uid: str = "") -> None:
            await super().cordon(node, cordoned, uid=uid)
            if len([ask for ask in self.asked if ask[0] == "cordon"]) == 1:
                raise UnreachableError("The API server cannot be reached.", "no answer in time")

    now_s = [1000.0]
    monkeypatch.setattr(Guard, "steady_s", staticmethod(lambda: now_s[0]))
    of = watched(Policy(repeated_failure=Action.CORDON), ())
    of.context.backend = of.cluster = Lost(ref=REF, context=of.context)
    session = cast(Session, of.context)
    of.guard = Guard(session, GuardActions(session), of.guard.policy, of.lines.append, judge=died)
    await of.see(failures(3))
    assert "MAY be done" in of.lines[-1]
    assert len(Journal().entries()) == 1, "it is not known whether the node is cordoned"
    now_s[0] += RETRY_S
    await of.poll()
    asked = [ask for ask in of.cluster.asked if ask[0] == "cordon"]
    assert asked == 2 * [("cordon", "node-a", "True")]
    assert not Journal().entries(), "the next start would uncordon the node"


async def test_job_is_stopped_only_where_a_restart_cannot_fix_it() -> None:
    policy = Policy(repeated_failure=Action.STOP)
    of = await after(policy, 3)
    assert not of.cluster.asked
    assert "a restart may fix the cause" in of.lines[-1]
    stopped: list[str] = []

    async def stop_job(self: GuardActions, job_id: str, *, uid: str = "") -> None:
        stopped.append(job_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GuardActions, "stop_job", stop_job)
        of = watched(policy, (), judge=user_error)
        await of.see(
            [
                replace(event, submission_id="job-1") if isinstance(event, RunSeen) else event
                for event in failures(4)
            ]
        )
    assert stopped == ["job-1"]


async def test_end_of_a_victim_never_acts() -> None:
    lost = failures(4, "ranks 0, 1: lost a peer: RuntimeError: gloo connection closed by peer")
    of = watched(Policy(repeated_failure=Action.CORDON))
    await of.see(lost)
    assert not of.cluster.asked
    assert "4 attempts failed within an hour." in of.lines[-1]
    assert "confidence is low" in of.lines[-1]


async def test_logs_of_the_last_end_are_read_before_anything_is_concluded() -> None:
    of = watched(Policy(repeated_failure=Action.CORDON), (), judge=died)
    for event in failures(4):
        of.context.dispatch(event)
        await of.poll()
    assert not of.lines


def test_failures_from_before_the_guard_are_not_counted() -> None:
    store = Store()
    for event in failures(3):
        store.apply(event)
    known = Failures(began_s=200.0)
    known.see(store, 201.0)
    assert not known.repeated(store, 201.0, 1)
    assert Failures().repeated(store, 201.0, 1)


def test_error_of_the_disk_does_not_keep_the_guard_from_acting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(path: Path, content: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_save", full)
    of = watched()
    asyncio.run(of.poll())
    assert of.killed()
    capture = watched(Policy(hang=Action.CAPTURE))
    asyncio.run(capture.poll(times=2))
    assert [line for line in capture.lines if "NOT done" in line]


async def test_clock_that_is_set_forward_gives_no_new_budget() -> None:
    of = watched(replace(RESTART, budget=1))
    await of.poll()
    assert len(of.killed()) == 1
    of.context.clock_step_s += 7_200.0
    of.context.dispatch(replace(hang(), attempt=2))
    pods = (HEAD, PODS[1], replace(THREE, uid="uid-3"))
    of.context.dispatch(PodsListed(at_s=120.0, source="backend", pods=pods))
    await of.poll()
    assert len(of.killed()) == 1
    assert "the budget of 1 change per hour is used up" in of.lines[-1]


async def test_job_of_a_run_that_is_over_is_not_stopped() -> None:
    over = RunSeen(
        at_s=106.0, source="telemetry", run_id=RUN, name="demo", state=RunState.ERRORED,
        submission_id="job-1",
    )  # fmt: skip
    of = watched(Policy(repeated_failure=Action.STOP), (), judge=user_error)
    await of.see([*failures(4), over])
    assert not audited()
    assert "Reason: the run is over." in of.lines[-1]


def test_attempts_of_days_ago_are_not_judged_once_a_second() -> None:
    store, judged = Store(), list[int]()

    def judge(store: Store, run: RunView) -> Sequence[Cause]:
        judged.append(len(run.attempts))
        return died(store, run)

    for event in failures(3_000):
        store.apply(event)
    [found] = Failures(judge).repeated(store, 100.5 + 3_000 + HOUR_S - 5.0, 3)
    assert judged[0] <= JUDGED + 10
    assert found.sentence.startswith("6 attempts failed within an hour.")
