"""A drill from its beginning to its end, on a simulated cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TypeVar

import pytest
from msgspec.structs import replace

from cockpit.backends.protocol import ExecResult
from cockpit.config.process_identity import ProcessId
from cockpit.drills.engine import countdown, drill_log
from cockpit.drills.engine import drill as drill_engine
from cockpit.drills.engine.interrupted import undo_entries
from cockpit.drills.engine.journal import Entry, Journal
from cockpit.drills.engine.lease import Timing
from cockpit.drills.faults.fault import DrillContext, Order, Prepared, Undo, Victims
from cockpit.drills.plan.plan import FaultSpec, ProbeSpec, TargetSpec, Timeouts
from cockpit.drills.probes import probe_runner
from cockpit.model.drill import Stage, Verdict
from cockpit.model.error import CockpitError, LeaseHeldError, UnreachableError, UsageError
from cockpit.model.event import DrillInjected, DrillStaged, PodsListed
from cockpit.session.session import Session
from cockpit.store.store import Store
from tests.drills.simulated_context import (
    FREEZE,
    QUICK,
    Obedient,
    Refusing,
    Scripted,
    ScriptedContext,
    experiment,
    plan,
    pods_back,
    recovering,
    trained,
)
from tests.events import DRILL, HEAD, ONE, TWO, pods, the_recovery
from tests.local_cluster import until
from tests.simulated_backend import ScriptedBackend

T = TypeVar("T")
READY = ProbeSpec("ready", "ready", when=("before", "after"))
STEADY = ProbeSpec("steady", "steady", when=("during",))
SAFE = ProbeSpec("safe", "safe")
UNCORDON = Undo("uncordon", "uncordon node n1", name="n1")


async def test_a_run_that_comes_back_passes_with_all_that_was_measured() -> None:
    context = ScriptedContext(trained())
    drill = experiment(context, Obedient(apply=recovering(context)))
    record = await drill.conduct()
    assert record.verdict is Verdict.PASSED, record.why
    assert context.stages == [
        Stage.PREPARING, Stage.BEFORE, Stage.INJECTING, Stage.RECOVERING, Stage.AFTER, Stage.ENDED,
    ]  # fmt: skip
    measured = record.recoveries[0]
    assert measured.recovered
    assert measured.steps_lost == 12
    assert measured.drill.seed == drill.seed
    assert measured.drill.parameters == {"much": "1.0"}
    assert record.fault == "obedient"
    assert [event.record for event in context.ended] == [record]
    asked = [call[0] for call in context.backend.asked]
    assert (asked[0], asked[-1]) == ("hold", "release")


async def test_a_process_that_was_stopped_at_the_end_still_measures_the_recovery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As by ctrl+z: all timers are over when it continues, and then the store answers."""

    class Stopped(ScriptedContext):
        async def ask(self, question: Callable[[Store], T]) -> T:
            drained = asyncio.Event()
            asyncio.get_running_loop().call_later(0.01, drained.set)
            time.sleep(1.5 * drill_log.ANSWER_S)  # noqa: ASYNC251 - the whole process stops
            await drained.wait()
            return question(self.store)

    monkeypatch.setattr(drill_log, "ANSWER_S", 0.2)
    context = Stopped([*trained(), *the_recovery()])
    log = drill_log.DrillLog(context, plan(), DRILL.id, 1)
    log.drills.append(DRILL)
    record = await log.end(Verdict.PASSED, "", None)
    assert not record.notes
    assert record.recoveries[0].recovered


async def test_a_run_that_recovers_while_the_process_is_stopped_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its recovery is read after the process has continued, when the time to recover is over."""

    class Stopped(ScriptedContext):
        was_stopped = False

        async def ask(self, question: Callable[[Store], T]) -> T:
            if not self.was_stopped and self.stages[-1:] == [Stage.RECOVERING]:
                self.was_stopped = True
                asyncio.get_running_loop().call_later(1.0, self.recover)
                time.sleep(0.5)  # noqa: ASYNC251 - the whole process stops
            return question(self.store)

        def recover(self) -> None:
            for event in the_recovery()[1:]:
                self.dispatch(event)

    monkeypatch.setattr(drill_engine, "ROUND_S", 0.05)
    context = Stopped(trained())
    record = await experiment(context, Obedient()).conduct()
    assert context.was_stopped
    assert record.verdict is Verdict.PASSED, record.why


async def test_a_run_that_stays_away_fails() -> None:
    context = ScriptedContext(trained())

    async def kill() -> None:
        pods_back(context)

    record = await experiment(context, Obedient(apply=kill)).conduct()
    assert record.verdict is Verdict.FAILED
    assert "did not recover" in record.why
    assert any("not all milestones were reached within 0.3 s" in note for note in record.notes)


async def test_nothing_is_injected_when_the_hypothesis_does_not_hold_before() -> None:
    context, fault = ScriptedContext(trained()), Obedient()
    prober = Scripted({"ready": [(False, "1 of 2 ready")]})
    drill = experiment(context, fault, plan(hypothesis=(READY,)), prober=prober)
    record = await drill.conduct()
    assert record.verdict is Verdict.REFUSED
    assert "ready: 1 of 2 ready" in record.why
    assert not record.drills
    assert not any(isinstance(event, DrillInjected) for event in context.told)


async def test_a_run_that_has_just_begun_has_some_time_for_a_steady_state() -> None:
    context = ScriptedContext(trained())
    prober = Scripted({"ready": [(None, "2 of 3 losses"), (True, "3 of 3 losses")]})
    wanted = plan(hypothesis=(READY,), timeouts=replace(QUICK, before_s=10.0))
    drill = experiment(context, Obedient(apply=recovering(context)), wanted, prober=prober)
    record = await drill.conduct()
    assert record.verdict is Verdict.PASSED, record.why
    lines = [event.message for event in context.told if isinstance(event, DrillStaged)]
    assert "no steady state yet: ready: 2 of 3 losses" in lines
    assert context.stages[1:3] == [Stage.BEFORE, Stage.BEFORE]
    assert [stage for stage, _ in record.stages][1:3] == [Stage.BEFORE, Stage.INJECTING]
    assert [probe.value for probe in record.probes if probe.when == "before"] == ["3 of 3 losses"]


async def test_a_steady_state_is_not_waited_for_where_no_run_continues() -> None:
    context = ScriptedContext([pods(1.0, HEAD, ONE, TWO)])
    prober = Scripted({"ready": [(None, "there is no run"), (True, "a run")]})
    wanted = plan(hypothesis=(READY,), timeouts=replace(QUICK, before_s=10.0))
    record = await experiment(context, Obedient(), wanted, prober=prober).conduct()
    assert record.verdict is Verdict.REFUSED
    assert "there is no run" in record.why


async def test_a_hypothesis_that_cannot_be_asked_is_not_taken_to_hold() -> None:
    context = ScriptedContext(trained())

    class Away(Scripted):
        async def ask(self, *asked: object) -> tuple[bool | None, str]:
            raise UnreachableError("Nobody answers.")

    drill = experiment(context, Obedient(), plan(hypothesis=(READY,)), prober=Away({}))
    record = await drill.conduct()
    assert record.verdict is Verdict.REFUSED
    assert record.probes[0].ok is None
    assert "Nobody answers." in record.probes[0].value


async def test_a_probe_without_an_answer_is_given_up_after_its_time() -> None:
    context = ScriptedContext(trained())

    class Silent(Scripted):
        async def ask(self, *asked: object) -> tuple[bool | None, str]:
            await asyncio.Event().wait()
            raise AssertionError

    drill = experiment(context, Obedient(), plan(hypothesis=(READY,)), prober=Silent({}))
    assert "no answer within 0.3 s" in (await drill.conduct()).why


async def test_hypothesis_has_its_time_after_cockpit_was_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0

    async def stopped(seconds: float) -> None:
        nonlocal now_s
        now_s += 3600.0

    monkeypatch.setattr(countdown, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(probe_runner, "pause", stopped)
    prober = Scripted({"ready": [(True, "2"), *[(False, "1")] * 3, (True, "2 again")]})
    context, default = ScriptedContext(trained()), Timeouts()
    times = replace(QUICK, after_s=default.after_s, probe_s=default.probe_s)
    fault = Obedient(apply=recovering(context))
    wanted = plan(hypothesis=(READY,), timeouts=times)
    record = await experiment(context, fault, wanted, prober=prober).conduct()
    assert record.verdict is Verdict.PASSED, record.why


async def test_hypothesis_is_judged_by_its_last_result_after_the_fault() -> None:
    context = ScriptedContext(trained())
    prober = Scripted({"ready": [(True, "2"), (False, "1"), (True, "2 again")]})
    wanted = plan(hypothesis=(READY,), timeouts=replace(QUICK, after_s=10.0))
    drill = experiment(context, Obedient(apply=recovering(context)), wanted, prober=prober)
    record = await drill.conduct()
    assert record.verdict is Verdict.PASSED, record.why
    assert [(probe.when, probe.value) for probe in record.probes] == [
        ("before", "2"), ("after", "2 again"),
    ]  # fmt: skip


async def test_a_probe_that_fails_while_the_fault_lasts_fails_the_drill() -> None:
    context = ScriptedContext(trained())
    fault = Obedient(apply=recovering(context), lasts_s=0.3)
    prober = Scripted({"steady": [(False, "40 %")]})
    record = await experiment(context, fault, plan(hypothesis=(STEADY,)), prober=prober).conduct()
    assert record.verdict is Verdict.FAILED
    assert "while the fault lasted: steady: 40 %" in record.why


async def test_a_connection_lost_in_the_middle_does_not_end_the_drill() -> None:
    context = ScriptedContext(trained())
    fault = Obedient(apply=recovering(context), lasts_s=0.3)
    prober = Scripted({"steady": [(None, "the API server is away")]})
    record = await experiment(context, fault, plan(hypothesis=(STEADY,)), prober=prober).conduct()
    assert record.verdict is Verdict.PASSED, record.why
    assert [(probe.ok, probe.value) for probe in record.probes] == [
        (None, "the API server is away")
    ]


async def test_the_journal_is_written_before_the_fault_is_applied() -> None:
    context, journal = ScriptedContext(trained()), Journal()
    seen: list[tuple[Undo, ...]] = []

    async def look() -> None:
        seen.extend(entry.undo for entry in journal.entries())
        await recovering(context)()

    fault = Obedient(apply=look, undo=(FREEZE,), lasts_s=0.1)
    record = await experiment(context, fault, journal=journal).conduct()
    assert seen == [(FREEZE,)]
    assert record.verdict is Verdict.PASSED, record.why
    assert ("exec", ONE.name, "thaw") in context.backend.asked
    assert journal.entries() == []
    assert any("let it run again" in note for note in record.notes)


async def test_the_user_can_abort_in_the_middle_and_what_was_done_is_undone() -> None:
    context, journal = ScriptedContext(trained()), Journal()
    drill = experiment(context, Obedient(undo=(FREEZE,), lasts_s=60.0), journal=journal)
    going = asyncio.create_task(drill.conduct())
    await until(lambda: Stage.DURING in context.stages)
    await asyncio.to_thread(drill.abort)
    record = await asyncio.wait_for(going, 60)
    assert (record.verdict, record.why) == (Verdict.ABORTED, "by the user")
    assert ("exec", ONE.name, "thaw") in context.backend.asked
    assert journal.entries() == []
    assert record.drills


async def test_an_abort_of_an_injection_that_hangs_makes_the_fault_refuse() -> None:
    context, journal = ScriptedContext(trained()), Journal()
    begun = asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    wanted = plan(timeouts=replace(QUICK, inject_s=0.1))
    drill = experiment(context, Obedient(apply=hang, undo=(FREEZE,)), wanted, journal=journal)
    going = asyncio.create_task(drill.conduct())
    await asyncio.wait_for(begun.wait(), 60)
    drill.abort()
    await asyncio.wait_for(going, 60)
    assert ("exec", ONE.name, "thaw", "refuse") in context.backend.asked
    assert journal.entries() == []


async def test_an_abort_undoes_a_slow_injection_after_it_has_begun() -> None:
    context, journal = ScriptedContext(trained()), Journal()
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        begun.set()
        await may_end.wait()
        context.backend.asked.append(("fault",))

    fault = Obedient(apply=slow, undo=(FREEZE,), lasts_s=9.0)
    drill = experiment(context, fault, journal=journal)
    going = asyncio.create_task(drill.conduct())
    await asyncio.wait_for(begun.wait(), 60)
    drill.abort()
    asyncio.get_running_loop().call_later(0.1, may_end.set)
    assert (await asyncio.wait_for(going, 60)).verdict is Verdict.ABORTED
    done = [asked for asked in context.backend.asked if asked[0] in ("fault", "exec")]
    assert done == [("fault",), ("exec", ONE.name, "thaw")]
    assert journal.entries() == []


async def test_a_drill_whose_lease_is_lost_is_aborted_and_undone() -> None:
    class Lost(ScriptedBackend):
        async def hold(self, holder: str, ttl_s: float, *, expired: str = "") -> None:
            await super().hold(holder, ttl_s)
            if len(self.asked) > 2:
                raise LeaseHeldError(
                    "Another drill runs.", "Held by bob.", "", renewal="2", ttl_s=60.0, current=True
                )

    context, journal = ScriptedContext(trained(), Lost()), Journal()
    fault = Obedient(undo=(FREEZE,), lasts_s=60.0)
    drill = experiment(context, fault, journal=journal, timing=Timing(renew_s=0.05))
    record = await asyncio.wait_for(drill.conduct(), 60)
    assert record.verdict is Verdict.ABORTED
    assert record.why == "the lease of the cluster was lost: Held by bob."
    assert ("exec", ONE.name, "thaw") in context.backend.asked
    assert journal.entries() == []


class Taken(ScriptedBackend):
    """Another drill takes the lease after `renewals` of this one."""

    renewals = 0

    async def hold(self, holder: str, ttl_s: float, *, expired: str = "") -> None:
        await super().hold(holder, ttl_s)
        if sum(call[0] == "hold" for call in self.asked) > 1 + self.renewals:
            raise LeaseHeldError(
                "Another drill runs.", "Held by bob.", "", renewal="2", ttl_s=60.0, current=True
            )


async def test_a_drill_whose_lease_was_taken_during_a_suspension_does_nothing() -> None:
    context, journal = ScriptedContext(trained(), Taken()), Journal()
    record = await experiment(context, Obedient(), journal=journal).conduct()
    assert (record.verdict, record.why) == (Verdict.REFUSED, "Another drill runs. Held by bob.")
    assert not record.drills
    assert journal.entries() == []


async def test_a_drill_whose_lease_was_taken_between_two_faults_is_aborted_and_undone() -> None:
    backend = Taken()
    backend.renewals = 1
    context, journal = ScriptedContext(trained(), backend), Journal()
    faults = {name: Obedient(name, undo=(FREEZE,)) for name in ("one", "two")}
    drill = experiment(context, faults, plan("one", "two"), journal=journal)
    record = await drill.conduct()
    assert record.verdict is Verdict.ABORTED
    assert record.why == "the lease of the cluster was lost: Held by bob."
    assert [drill.fault for drill in record.drills] == ["one"]
    assert ("exec", ONE.name, "thaw") in backend.asked
    assert journal.entries() == []


async def test_the_uid_of_the_pod_and_the_answer_are_in_the_journal() -> None:
    events = [
        replace(event, pods=tuple(replace(pod, uid=f"uid-{pod.name}") for pod in event.pods))
        if isinstance(event, PodsListed)
        else event
        for event in trained()
    ]
    context, journal = ScriptedContext(events), Journal()
    fault = Obedient(undo=(FREEZE, replace(FREEZE, pod=TWO.name)), lasts_s=60.0)
    drill = experiment(context, fault, journal=journal)
    going = asyncio.create_task(drill.conduct())
    await until(lambda: Stage.DURING in context.stages)
    (entry,) = journal.entries()
    assert journal.orphans() == [], "this process lives, and undoes it at the end"
    hit = fault.hit[0].pods[0]
    assert fault.uids[0] == {hit.name: hit.uid}
    assert hit.uid in {undo.uid for undo in entry.undo}
    assert entry.answered
    drill.abort()
    await asyncio.wait_for(going, 60)


async def test_an_abort_ends_the_wait_for_another_lease() -> None:
    class Stale(ScriptedBackend):
        async def hold(self, holder: str, ttl_s: float, *, expired: str = "") -> None:
            raise LeaseHeldError(
                "Another drill runs.", "Held by bob.", "", renewal="1", ttl_s=60.0, current=False
            )

    context, fault = ScriptedContext(trained(), Stale()), Obedient()
    drill = experiment(context, fault)
    going = asyncio.create_task(drill.conduct())
    await until(
        lambda: any(
            "waiting 60 s" in event.message
            for event in context.told
            if isinstance(event, DrillStaged)
        )
    )
    drill.abort()
    assert (await asyncio.wait_for(going, 60)).verdict is Verdict.ABORTED
    assert fault.hit == []


async def test_an_abort_condition_ends_the_drill_in_the_middle() -> None:
    context = ScriptedContext(trained())
    prober = Scripted({"safe": [(True, "4 GB"), (False, "11 GB")]})
    wanted = plan(abort=(SAFE,))
    fault = Obedient(undo=(FREEZE,), lasts_s=60.0)
    going = experiment(context, fault, wanted, prober=prober).conduct()
    record = await asyncio.wait_for(going, 10)
    assert record.verdict is Verdict.ABORTED
    assert record.why == "abort condition: safe does not hold: 11 GB"
    assert ("exec", ONE.name, "thaw") in context.backend.asked


async def test_an_abort_condition_that_fails_before_lets_nothing_begin() -> None:
    context = ScriptedContext(trained())
    prober = Scripted({"safe": [(False, "11 GB")]})
    record = await experiment(context, Obedient(), plan(abort=(SAFE,)), prober=prober).conduct()
    assert record.verdict is Verdict.REFUSED
    assert not record.drills


async def test_a_fault_that_cannot_be_prepared_is_refused_with_the_reason() -> None:
    context = ScriptedContext(trained())
    record = await experiment(context, Obedient(missing="There is no tc.")).conduct()
    assert record.verdict is Verdict.REFUSED
    assert "There is no tc." in record.why


async def test_a_fault_that_this_kind_of_cluster_has_not_is_wrong_usage() -> None:
    context = ScriptedContext(trained())
    with pytest.raises(UsageError) as caught:
        await experiment(context, Obedient(obstacle_here="it has no network")).prepare()
    assert "It has no network." in caught.value.why


async def test_a_fault_that_fails_half_way_is_broken_and_undone() -> None:
    context, journal = ScriptedContext(trained()), Journal()

    async def fail() -> None:
        raise CockpitError("The pod is gone.")

    fault = Obedient(apply=fail, undo=(FREEZE,))
    record = await experiment(context, fault, journal=journal).conduct()
    assert record.verdict is Verdict.BROKEN
    assert "The pod is gone." in record.why
    assert ("exec", ONE.name, "thaw") in context.backend.asked
    assert journal.entries() == []


async def test_an_injection_that_takes_too_long_is_broken_and_undone() -> None:
    context = ScriptedContext(trained())

    async def hang() -> None:
        await asyncio.Event().wait()

    wanted = plan(timeouts=replace(QUICK, inject_s=0.1))
    record = await experiment(context, Obedient(apply=hang, undo=(FREEZE,)), wanted).conduct()
    assert record.verdict is Verdict.BROKEN
    assert "injecting obedient took more than 0.1 s" in record.why
    assert ("exec", ONE.name, "thaw", "refuse") in context.backend.asked


async def test_an_undo_that_fails_is_reported_and_kept_in_the_journal() -> None:
    context, journal = ScriptedContext(trained(), Refusing()), Journal()
    fault = Obedient(apply=recovering(context), undo=(FREEZE,), lasts_s=0.1)
    record = await experiment(context, fault, journal=journal).conduct()
    assert record.verdict is Verdict.BROKEN
    assert "cockpit drill undo" in record.why
    assert [entry.undo for entry in journal.entries()] == [(FREEZE,)]
    left = journal.orphans()
    assert [(entry.process, entry.given_up) for entry in left] == [(ProcessId.own(), True)]
    working = ScriptedBackend(ref=context.backend.ref)
    assert [one.error async for one in undo_entries(working, journal, left)] == [None]
    assert ("exec", ONE.name, "thaw") in working.asked
    assert journal.entries() == []


async def test_undo_that_fails_is_not_left_to_others_before_the_last_undo_has_ended() -> None:
    journal, seen = Journal(), list[list[Entry]]()

    class Half(ScriptedBackend):
        """Fails in the first pod. In the second it succeeds."""

        async def exec(self, pod: str, argv: Sequence[str], *, uid: str = "") -> ExecResult:
            seen.append(journal.orphans())
            if len(seen) == 1:
                return ExecResult(1, "", "no such thing here")
            return await super().exec(pod, argv, uid=uid)

    context = ScriptedContext(trained(), Half())
    fault = Obedient(apply=recovering(context), undo=(FREEZE,), lasts_s=0.1)
    wanted = plan("obedient", "obedient")
    await experiment(context, fault, wanted, journal=journal).conduct()
    assert seen == [[], []], "another process would release the lease of this drill"
    (entry,) = journal.orphans()
    assert entry.drill_id.endswith(".1")


async def test_effects_that_were_undone_are_not_left_with_the_one_that_failed() -> None:
    context, journal = ScriptedContext(trained(), Refusing()), Journal()
    fault = Obedient(apply=recovering(context), undo=(FREEZE, UNCORDON), lasts_s=0.1)
    await experiment(context, fault, journal=journal).conduct()
    assert ("cordon", "n1", "False") in context.backend.asked
    assert [(entry.undo, entry.given_up) for entry in journal.entries()] == [((FREEZE,), True)]


async def test_an_undo_that_hangs_is_given_up_and_kept_in_the_journal() -> None:
    class Hanging(ScriptedBackend):
        async def exec(self, pod: str, argv: object, *, uid: str = "") -> None:  # type: ignore[override]
            await asyncio.Event().wait()

    context, journal = ScriptedContext(trained(), Hanging()), Journal()
    wanted = plan(timeouts=replace(QUICK, undo_s=0.1))
    fault = Obedient(apply=recovering(context), undo=(FREEZE,), lasts_s=0.1)
    record = await experiment(context, fault, wanted, journal=journal).conduct()
    assert record.verdict is Verdict.BROKEN
    assert "took more than 0.1 s" in record.why
    assert [entry.given_up for entry in journal.orphans()] == [True]


async def test_a_cancelled_drill_is_undone_before_the_cancellation_continues() -> None:
    context, journal = ScriptedContext(trained()), Journal()
    drill = experiment(context, Obedient(undo=(FREEZE,), lasts_s=60.0), journal=journal)
    going = asyncio.create_task(drill.conduct())
    await until(lambda: Stage.DURING in context.stages)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(going, 60)
    assert ("exec", ONE.name, "thaw") in context.backend.asked
    assert journal.entries() == []
    assert context.ended[0].record.why == "interrupted"


async def test_a_cancellation_in_the_middle_of_the_undo_does_not_stop_it() -> None:
    undoing, may_end = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedBackend):
        async def exec(self, pod: str, argv: object, *, uid: str = "") -> object:  # type: ignore[override]
            undoing.set()
            await may_end.wait()
            return await super().exec(pod, ["thaw"])

    context, journal = ScriptedContext(trained(), Slow()), Journal()
    drill = experiment(
        context, Obedient(apply=recovering(context), undo=(FREEZE,), lasts_s=0.1), journal=journal
    )
    going = asyncio.create_task(drill.conduct())
    await asyncio.wait_for(undoing.wait(), 60)
    going.cancel()
    asyncio.get_running_loop().call_later(0.1, may_end.set)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(going, 60)
    assert journal.entries() == []


def test_a_session_that_is_closed_in_the_middle_leaves_nothing_broken() -> None:
    backend, journal = ScriptedBackend(events=trained()), Journal()
    fault = Obedient(undo=(FREEZE,), lasts_s=60.0)
    with Session(backend) as session:
        assert session.wait(lambda store: "run-1" in store.runs, 60)
        context = session
        drill = experiment(context, fault, journal=journal)  # type: ignore[arg-type]
        session.submit(drill.conduct())
        assert session.wait(
            lambda store: (
                drill.id in store.drilling and store.drilling[drill.id].stage is Stage.DURING
            ),
            60,
        )
    assert ("exec", ONE.name, "thaw") in backend.asked
    assert journal.entries() == []


async def test_a_cluster_that_another_drill_holds_is_left_alone() -> None:
    class Held(ScriptedBackend):
        async def hold(self, holder: str, ttl_s: float, *, expired: str = "") -> None:
            raise CockpitError("Another drill runs on scripted.", "It is somebody's.")

    context, fault = ScriptedContext(trained(), Held()), Obedient()
    record = await experiment(context, fault).conduct()
    assert record.verdict is Verdict.REFUSED
    assert "Another drill runs" in record.why
    assert fault.hit == []


async def test_a_lease_that_cannot_be_released_is_noted() -> None:
    class Sticky(ScriptedBackend):
        async def release(self, holder: str) -> None:
            raise CockpitError("The API server refuses it.")

    context = ScriptedContext(trained(), Sticky())
    record = await experiment(context, Obedient(apply=recovering(context))).conduct()
    assert record.verdict is Verdict.PASSED
    assert any("the lease was not released" in note for note in record.notes)


async def test_two_faults_at_once_are_both_injected_and_both_undone() -> None:
    context, journal = ScriptedContext(trained()), Journal()
    thaw_two = replace(FREEZE, pod=TWO.name)
    faults = {
        "first": Obedient("first", undo=(FREEZE,), lasts_s=0.1),
        "second": Obedient("second", apply=recovering(context), undo=(thaw_two,), lasts_s=0.2),
    }
    record = await experiment(context, faults, journal=journal).conduct()
    assert [drill.fault for drill in record.drills] == ["first", "second"]
    assert record.fault == "first+second"
    assert {asked[1] for asked in context.backend.asked if asked[0] == "exec"} == {
        ONE.name, TWO.name,
    }  # fmt: skip
    assert journal.entries() == []


async def test_the_second_of_two_faults_that_fails_has_the_first_undone() -> None:
    context, journal = ScriptedContext(trained()), Journal()

    async def fail() -> None:
        raise CockpitError("No right.")

    faults = {
        "first": Obedient("first", undo=(FREEZE,), lasts_s=9.0),
        "second": Obedient("second", apply=fail),
    }
    record = await experiment(context, faults, journal=journal).conduct()
    assert record.verdict is Verdict.BROKEN
    assert ("exec", ONE.name, "thaw") in context.backend.asked
    assert journal.entries() == []


async def test_task_of_a_fault_is_cancelled_with_the_fault() -> None:
    context = ScriptedContext(trained())
    course: list[str] = []

    async def beat() -> None:
        course.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            course.append("ended")

    fault = Obedient(apply=recovering(context), meanwhile=beat, lasts_s=0.2)
    await experiment(context, fault).conduct()
    assert course == ["begun", "ended"]


async def test_a_fault_does_not_last_longer_when_the_clock_is_set_back() -> None:
    context = ScriptedContext(trained())

    async def set_back() -> None:
        context.clock_step_s = -3_600.0

    fault = Obedient(apply=recovering(context), undo=(FREEZE,), meanwhile=set_back, lasts_s=0.2)
    async with asyncio.timeout(10.0):
        record = await experiment(context, fault).conduct()
    assert record.verdict is not Verdict.BROKEN
    assert ("exec", ONE.name, "thaw") in context.backend.asked


async def test_a_recovery_is_not_waited_for_longer_when_the_clock_is_set_back() -> None:
    context = ScriptedContext(trained())
    drill = experiment(context, fault := Obedient())

    async def kill() -> None:
        context.dispatch(the_recovery()[0])  # and nothing follows: it never recovers

    async def set_back() -> None:
        while Stage.RECOVERING not in context.stages:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        context.clock_step_s = -3_600.0

    fault.apply = kill
    stepped = asyncio.create_task(set_back())
    async with asyncio.timeout(10.0):
        record = await drill.conduct()
    assert stepped.done()
    assert any("not all milestones were reached within 0.3 s" in note for note in record.notes)


async def test_the_kills_of_a_fault_that_kills_again_are_each_measured() -> None:
    context = ScriptedContext(trained())
    drill = experiment(context, fault := Obedient("again", lasts_s=0.2))

    async def kill_twice() -> None:
        own = await drill.prepare()
        for number in (1, 2):
            hit = own[0].victims.pods[0].name
            reported = replace(DRILL, id=f"{drill.id}.1.{number}", target=hit, pods=(hit,))
            context.dispatch(DrillInjected(at_s=context.clock(), source="user", drill=reported))
        await recovering(context)()

    fault.meanwhile = kill_twice
    record = await drill.conduct()
    assert [one.id.removeprefix(drill.id) for one in record.drills] == [".1.1", ".1.2"]
    assert record.fault == "again", "what was asked for, and not what it did"


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_the_same_seed_hits_the_same_pods(seed: int) -> None:
    hit = []
    for _ in range(2):
        context, fault = ScriptedContext(trained()), Obedient()
        await experiment(context, fault, plan(seed=seed)).prepare()
        hit.append(fault.hit[0].name)
    assert hit[0] == hit[1]


async def test_different_seeds_hit_different_pods() -> None:
    hit = set()
    for seed in range(8):
        context, fault = ScriptedContext(trained()), Obedient()
        await experiment(context, fault, plan(seed=seed)).prepare()
        hit.add(fault.hit[0].name)
    assert hit == {ONE.name, TWO.name}


async def test_a_dry_run_reports_what_the_drill_then_does_and_changes_nothing() -> None:
    context, journal, fault = ScriptedContext(trained()), Journal(), Obedient(undo=(FREEZE,))
    fault.apply = partial(_must_not, "apply")
    drill = experiment(context, fault, plan(seed=7), journal=journal)
    armed = await drill.prepare()
    assert armed[0].prepared.lines
    assert context.backend.asked == []
    assert context.told == []
    assert journal.entries() == []
    fault.apply = recovering(context)
    record = await drill.conduct()
    assert record.drills[0].target == armed[0].victims.name


async def test_others_than_those_that_were_reported_are_not_hit() -> None:
    """The selected pod is deleted between the confirmation and its answer."""
    context, fault = ScriptedContext(trained()), Obedient()
    drill = experiment(context, fault, plan(seed=7))
    (reported,) = await drill.prepare()
    fault.apply = partial(_must_not, "apply")
    removed = reported.victims.pods[0].name
    left = [one for one in (HEAD, ONE, TWO) if one.name != removed]
    context.dispatch(pods(context.clock(), *left))
    record = await drill.conduct()
    assert record.verdict is Verdict.REFUSED
    assert removed in record.why
    assert not record.drills


async def test_pod_that_was_replaced_under_its_name_is_not_hit() -> None:
    """The pod in the plan is deleted, and a new one has its name when the drill begins."""
    context, fault = ScriptedContext(trained()), Obedient()
    drill = experiment(context, fault, plan(seed=7))
    (reported,) = await drill.prepare()
    fault.apply = partial(_must_not, "apply")
    shown = reported.victims.pods[0]
    now = [replace(one, uid="new") if one.name == shown.name else one for one in (HEAD, ONE, TWO)]
    context.dispatch(pods(context.clock(), *now))
    record = await drill.conduct()
    assert record.verdict is Verdict.REFUSED
    assert f"Pod {shown.name} was replaced since the plan was shown" in record.why


async def _must_not(what: str) -> None:
    raise AssertionError(what)


async def test_more_targets_than_there_are_is_an_error_and_no_smaller_drill() -> None:
    context = ScriptedContext(trained())
    wanted = plan(faults=(FaultSpec("obedient", target=TargetSpec(count=3)),))
    record = await experiment(context, Obedient(), wanted).conduct()
    assert record.verdict is Verdict.REFUSED
    assert "but 3 needed" in record.why


async def test_preparing_has_a_time_limit() -> None:
    ground = ScriptedContext(trained())

    class Slow(Obedient):
        async def prepare(self, ground: DrillContext, victims: Victims, order: Order) -> Prepared:
            await asyncio.Event().wait()
            raise AssertionError

    wanted = plan(timeouts=Timeouts(prepare_s=0.1))
    record = await experiment(ground, Slow(), wanted).conduct()
    assert record.verdict is Verdict.REFUSED
    assert "preparing took more than 0.1 s" in record.why
