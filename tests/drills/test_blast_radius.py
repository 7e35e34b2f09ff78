"""A drill never exceeds its limits on pods, however its targets were named."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from cockpit.actions.drills import DrillActions
from cockpit.cli.drill import run
from cockpit.cli.main import main
from cockpit.cli.options import connect
from cockpit.config import file
from cockpit.drills.faults import chaos
from cockpit.drills.faults import pods as pod_faults
from cockpit.drills.faults.catalog import fault
from cockpit.drills.faults.fault import Aim, DrillContext, Order, Prepared, Victims
from cockpit.drills.faults.fault import parameter_values as values
from cockpit.drills.gamedays.file import game_day, parsed, shipped
from cockpit.drills.gamedays.gameday import Inject
from cockpit.drills.plan.plan import (
    BlastRadius,
    DrillPlan,
    FaultSpec,
    TargetSpec,
    checked_blast_radius,
    parse_blast_radius,
    require_within,
)
from cockpit.model.cluster import Pod, WorkerGroup
from cockpit.model.drill import Verdict
from cockpit.model.error import NotAllowedError, UsageError
from cockpit.model.event import GroupsListed, SourceHealth
from cockpit.session import monitored
from cockpit.session.session import Session
from cockpit.tui.commands import drill_form
from tests.drills.simulated_context import Obedient, ScriptedContext, experiment
from tests.events import HEAD, pod, pods, reduced
from tests.simulated_backend import ScriptedBackend

ALL = "group:workers"


def workers(count: int) -> list[Pod]:
    return [pod(f"t-workers-{n}", f"127.0.2.{n + 1}") for n in range(count)]


def group(count: int) -> GroupsListed:
    there = WorkerGroup("workers", count, count, 0, 100)
    return GroupsListed(at_s=1.0, source="backend", groups=(there,))


def context_of(count: int, backend: ScriptedBackend | None = None) -> ScriptedContext:
    return ScriptedContext([group(count), pods(1.0, HEAD, *workers(count))], backend)


def asked(target: TargetSpec, **limits: object) -> DrillPlan:
    return DrillPlan(
        "test",
        (FaultSpec("obedient", target=target),),
        blast_radius=BlastRadius(**limits),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("size", "target", "limits", "said"),
    [
        (1, TargetSpec(ALL), {}, ""),
        (2, TargetSpec(count=1), {}, ""),
        (2, TargetSpec(count=2), {}, "would hit 2 of the 2 pods of group workers"),
        (5, TargetSpec(count=2), {}, "would hit 2 of the 5 pods"),
        (6, TargetSpec(count=2), {}, ""),
        (3, TargetSpec(ALL), {}, "would hit 3 of the 3 pods"),
        (3, TargetSpec(ALL), {"max_share": 1.0}, ""),
        (3, TargetSpec(ALL), {"max_share": 1.0, "max_pods": 2}, "would hit 3 pods"),
        (3, TargetSpec(ALL), {"max_pods": 3}, "would hit 3 of the 3 pods"),
        (4, TargetSpec(count=2), {"max_share": 0.5}, ""),
        (4, TargetSpec(count=1), {"max_share": 0.0}, ""),
        (2, TargetSpec("head"), {}, ""),
    ],
)
async def test_drill_beyond_its_limit_is_refused(
    size: int, target: TargetSpec, limits: dict[str, object], said: str
) -> None:
    drill = experiment(context_of(size), Obedient(), asked(target, **limits))
    if said:
        with pytest.raises(NotAllowedError, match=said):
            await drill.prepare()
    else:
        await drill.prepare()


async def test_group_that_has_shrunk_since_the_plan_was_shown_is_counted_again() -> None:
    there, hit = context_of(6), Obedient()
    drill = experiment(there, hit, replace(asked(TargetSpec(count=2)), seed=1))
    (armed,) = await drill.prepare()
    there.dispatch(pods(2.0, HEAD, *armed.victims.pods))
    record = await drill.conduct()
    assert record.verdict is Verdict.REFUSED
    assert not record.drills


async def test_faults_of_one_drill_count_together() -> None:
    two = DrillPlan(
        "test",
        (
            FaultSpec("a", target=TargetSpec("t-workers-0")),
            FaultSpec("b", target=TargetSpec("t-workers-1")),
        ),
    )
    faults = {"a": Obedient("a"), "b": Obedient("b")}
    with pytest.raises(NotAllowedError, match="would hit 2 of the 3 pods"):
        await experiment(context_of(3), faults, two).prepare()
    same = replace(two, faults=(two.faults[0], replace(two.faults[1], target=two.faults[0].target)))
    assert len(await experiment(context_of(3), faults, same).prepare()) == 2


def test_missing_pods_count_where_kills_continue() -> None:
    """Of six wanted, one is missing and one is not ready: no other may be hit."""
    living = workers(5)
    living[4] = replace(living[4], ready=False)
    for ready, refused in ((living, True), (workers(5), False), (workers(6), False)):
        store = reduced([group(6), pods(1.0, HEAD, *ready)])
        if refused:
            with pytest.raises(NotAllowedError, match="would hit 3 of the 6 pods"):
                require_within(store, [living[0]], BlastRadius(), with_missing=True)
        else:
            require_within(store, [living[0]], BlastRadius(), with_missing=True)


def test_pods_of_one_replica_count_as_one_and_are_lost_together() -> None:
    """Three replicas of two hosts each."""
    there = [replace(one, replica=f"r{n // 2}") for n, one in enumerate(workers(6))]
    store = reduced([pods(1.0, HEAD, *there)])
    require_within(store, there[:1], BlastRadius())
    require_within(store, there[:2], BlastRadius())
    with pytest.raises(NotAllowedError, match="would hit 2 of the 3 replicas of group workers"):
        require_within(store, [there[0], there[2]], BlastRadius())
    with pytest.raises(NotAllowedError, match="would hit 2 pods"):
        require_within(store, there[:1], BlastRadius(max_pods=1))


def test_targets_that_all_no_longer_exist_are_refused_and_no_defect() -> None:
    with pytest.raises(NotAllowedError, match="would hit 2 of the 0 pods"):
        require_within(reduced([pods(1.0, HEAD)]), workers(2), BlastRadius())


async def test_random_kills_wait_while_pods_are_missing() -> None:
    backend = ScriptedBackend()
    there = context_of(6, backend)
    there.dispatch(pods(2.0, HEAD, *workers(4)))
    kills = fault("random-kills")
    order = Order("d.1", values(kills, {}), Random(1))
    with pytest.raises(NotAllowedError, match="would hit 3 of the 6 pods"):
        await chaos.kill_one(there, fault("pod-kill"), (), order, 1)
    assert not backend.asked


@pytest.mark.parametrize(
    ("flags", "config", "code"),
    [
        ((), "", 4),
        (("--max-share", "1"), "", 0),
        (("--max-share", "0.6"), "", 4),
        (("--max-share", "1", "--max-pods", "2"), "", 4),
        ((), "[drills]\nmax_share = 1.0", 0),
        ((), "[drills]\nmax_share = 1.0\nmax_pods = 2", 4),
        (("--max-pods", "3"), "[drills]\nmax_share = 1.0\nmax_pods = 2", 0),
        (("--max-share", "2"), "", 2),
        (("--max-pods", "0"), "", 2),
        ((), "[drills]\nmax_shares = 1.0", 2),
    ],
)
def test_flags_beat_the_configuration(
    flags: tuple[str, ...], config: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = SourceHealth(at_s=1.0, source="backend", ok=True)
    backend = ScriptedBackend([group(3), pods(1.0, HEAD, *workers(3)), at])
    monkeypatch.setattr(connect, "backend", lambda *_: backend)
    monkeypatch.setattr(monitored, "monitored_session_on", Session)
    monkeypatch.setattr(monitored, "prober_on", lambda session: None)
    monkeypatch.setattr(run, "SOURCES", ("backend",))
    where = file.path()
    where.parent.mkdir(parents=True)
    where.write_text(config)
    assert main(["drill", "plan", "pod-kill", "--target", ALL, *flags]) == code


FILE = """
[defaults]
max_share = 0.5

[[step]]
drill = "pod-kill"

[[step]]
drill = "pod-kill"
max_share = 1
max_pods = 4
"""


def limits_of(text: str) -> list[BlastRadius]:
    day = parsed(text, "f.toml", "f")
    return [step.doing.plan.blast_radius for step in day.steps if isinstance(step.doing, Inject)]


def test_game_day_reports_its_limits_and_the_configuration_bounds_them() -> None:
    first, second = limits_of(FILE)
    assert (first, second) == (BlastRadius(None, 0.5), BlastRadius(4, 1.0))
    session = Session(ScriptedBackend())
    actions = DrillActions(session, limits=BlastRadius(max_pods=2, max_share=0.4))
    bounded = actions.experiment(replace(asked(TargetSpec()), blast_radius=second))
    assert bounded.plan.blast_radius == BlastRadius(2, 0.4)
    for wrong in ("max_share = 1.5", 'max_share = "1"', "max_pods = 0", "max_pods = true"):
        with pytest.raises(UsageError, match=r"f\.toml:3:1: max_"):
            limits_of(FILE.replace("max_share = 0.5", wrong))


def test_shipped_game_days_hit_more_than_a_third_only_where_they_report_it() -> None:
    for name in shipped():
        for step in game_day(name).steps:
            if isinstance(step.doing, Inject):
                plan = step.doing.plan
                hit = sum(
                    spec.target.count
                    for spec in plan.faults
                    if fault(spec.fault).aim is not Aim.CHECKPOINT
                )
                assert hit <= 1 or plan.blast_radius.max_share, f"{name}: {step.name}"


def test_limits_are_typed_in_the_screen() -> None:
    form = drill_form.typed(["pod-kill", "--max-share", "0.5", "--max-pods", "3"])
    assert drill_form.plan(form).blast_radius == BlastRadius(3, 0.5)
    assert drill_form.plan(replace(form, share="", pods="")).blast_radius == BlastRadius()
    with pytest.raises(UsageError, match="max_share"):
        drill_form.plan(replace(form, share="3"))


def test_limits_are_checked() -> None:
    assert parse_blast_radius({}) == BlastRadius()
    assert checked_blast_radius(None, 1) == BlastRadius(None, 1.0)
    assert BlastRadius().of_group(3) == 1
    assert BlastRadius().of_group(300) == 100


async def test_random_kill_is_of_the_pods_that_it_chose_and_not_of_others_of_their_names() -> None:
    there = context_of(6, ScriptedBackend())
    orders: list[Order] = []

    async def prepare(context: DrillContext, victims: Victims, order: Order) -> Prepared:
        orders.append(order)
        assert order.uids == {pod.name: pod.uid for pod in victims.pods}
        return await pod_faults.pod_end(context, victims, order)

    order = Order("d.1", values(fault("random-kills"), {}), Random(1), uids={"w-0": "old"})
    await chaos.kill_one(there, replace(fault("pod-kill"), prepare=prepare), (), order, 1)
    assert orders
