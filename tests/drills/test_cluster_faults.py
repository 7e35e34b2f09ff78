"""Faults of the cluster itself, on a scripted backend."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from cockpit.backends.protocol import ExecResult
from cockpit.drills.engine.journal import Journal
from cockpit.drills.faults.catalog import fault
from cockpit.drills.faults.fault import Order, Victims
from cockpit.drills.plan.plan import FaultSpec, TargetSpec
from cockpit.model.cluster import KubernetesNode, Node, WorkerGroup
from cockpit.model.drill import Stage, Verdict
from cockpit.model.error import CockpitError, ReplacedError
from cockpit.model.event import GroupsListed, KubernetesNodesListed, NodesListed, PodsListed
from tests.drills.simulated_context import ScriptedContext, experiment, plan, trained
from tests.events import HEAD, ONE, TWO
from tests.local_cluster import until
from tests.simulated_backend import ScriptedBackend

REFUSED = "Error: The drain request is not accepted: the node is not idle"


@dataclass(slots=True)
class Draining(ScriptedBackend):
    """`ray drain-node` fails with this message for the node of the second pod."""

    error: str = REFUSED

    async def exec(self, pod: str, argv: Sequence[str], *, uid: str = "") -> ExecResult:
        await ScriptedBackend.exec(self, pod, argv, uid=uid)
        return (
            ExecResult(1, "", self.error) if f"node-{TWO.name}" in argv else ExecResult(0, "", "")
        )


async def drained(
    backend: Draining, directory: Path, target: TargetSpec, *, is_kept: bool = False
) -> list[str]:
    """The pods that are deleted after a drain that fails."""
    nodes = tuple(Node(f"node-{p.name}", p.ip, "", False, alive=True) for p in (ONE, TWO))
    events = [*trained(), NodesListed(at_s=99.0, source="ray", nodes=nodes)]
    spec = FaultSpec("node-drain", {"deadline_s": "0"}, target)
    drill = experiment(
        ScriptedContext(events, backend),
        fault("node-drain"),
        plan(faults=(spec,)),
        journal=Journal(directory),
    )
    record = await drill.conduct()
    assert record.verdict is Verdict.BROKEN
    assert bool(Journal(directory).entries()) == is_kept
    return [call[1] for call in backend.asked if call[0] == "delete_pod"]


async def test_pod_is_not_deleted_when_ray_refused_its_drain(tmp_path: Path) -> None:
    assert await drained(Draining(), tmp_path, TargetSpec(TWO.name)) == []


async def test_only_drained_pods_are_replaced_when_a_later_drain_is_refused(tmp_path: Path) -> None:
    assert await drained(Draining(), tmp_path, TargetSpec(count=2)) == [ONE.name]


async def test_full_disk_keeps_no_drained_pod_from_being_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise CockpitError("The journal of undo cannot be written.", "No space left on device")

    monkeypatch.setattr(Journal, "done", full)
    assert await drained(Draining(), tmp_path, TargetSpec(count=2), is_kept=True) == [ONE.name]


async def test_pod_is_replaced_when_the_drain_may_have_been_accepted(tmp_path: Path) -> None:
    backend = Draining(error="grpc: deadline exceeded")
    assert await drained(backend, tmp_path, TargetSpec(TWO.name)) == [TWO.name]


@pytest.mark.parametrize("is_aborted", [True, False])
async def test_pod_with_a_preemption_notice_is_deleted_once(
    is_aborted: bool, tmp_path: Path
) -> None:
    """By the fault at its deadline, or by the undo of a drill that is aborted before."""
    backend = Draining()
    nodes = (Node(f"node-{ONE.name}", ONE.ip, "", False, alive=True),)
    listed = NodesListed(at_s=99.0, source="ray", nodes=nodes)
    context = ScriptedContext([*trained(), listed], backend)
    values = {"notice_s": "600" if is_aborted else "0"}
    spec = FaultSpec("spot-preemption", values, TargetSpec(ONE.name))
    preemption, journal = fault("spot-preemption"), Journal(tmp_path)
    drill = experiment(context, preemption, plan(faults=(spec,)), journal=journal)
    going = asyncio.create_task(drill.conduct())
    await until(lambda: Stage.DURING in context.stages)
    if is_aborted:
        assert len(journal.entries()) == 1
        drill.abort()
    record = await going
    assert (record.verdict is Verdict.ABORTED) is is_aborted
    assert [call[1] for call in backend.asked if call[0] == "delete_pod"] == [ONE.name]
    assert not journal.entries()


@pytest.mark.parametrize("others", [(), ("host-1",)])
async def test_node_that_somebody_else_has_cordoned_since_the_plan_stays_cordoned(
    others: tuple[str, ...],
) -> None:
    def nodes(*cordoned: str) -> KubernetesNodesListed:
        names = ("host-1", "host-2")
        each = (KubernetesNode(name, ready=True, cordoned=name in cordoned) for name in names)
        return KubernetesNodesListed(at_s=99.0, source="backend", nodes=tuple(each))

    class Refusing(ScriptedBackend):
        async def cordon(self, node: str, cordoned: bool, *, uid: str = "") -> None:
            await super().cordon(node, cordoned, uid=uid)
            raise CockpitError("The API server does not answer.")

    context = ScriptedContext([*trained(), nodes()], Refusing())
    order = Order("drill-1.1", {"grace_s": 0.0, "for_s": 1.0, "cordon": True}, Random(1))
    victims = Victims((replace(ONE, host="host-1"), replace(TWO, host="host-2")))
    prepared = await fault("evict").prepare(context, victims, order)
    context.store.apply(nodes(*others))
    with pytest.raises(CockpitError):
        await prepared.apply()
    asked = "host-2" if others else "host-1"
    assert [call for call in context.backend.asked if call[0] == "cordon"] == [
        ("cordon", asked, "True")
    ]
    undone = [undo.name for undo in prepared.undo if prepared.took_effect(undo)]
    assert undone == [asked], "not the one that somebody else cordoned, nor one after the error"


@pytest.mark.parametrize(("least", "error"), [(4, ""), (8, "its min is 2")])
async def test_scale_down_counts_replicas_of_several_hosts(least: int, error: str) -> None:
    hosts = tuple(
        replace(ONE, name=f"slice-{number}", group="slice", replica=f"r{number // 4}")
        for number in range(8)
    )
    group = WorkerGroup("slice", desired=8, ready=8, min=least, max=16, hosts=4)
    ground = ScriptedContext(
        [
            PodsListed(at_s=1.0, source="backend", pods=(HEAD, *hosts)),
            GroupsListed(at_s=1.0, source="backend", groups=(group,)),
        ]
    )
    order = Order("drill-1.1", {"for_s": 1.0}, Random(1))
    preparing = fault("scale-down").prepare(ground, Victims(hosts[:1]), order)
    if error:
        with pytest.raises(CockpitError, match=error):
            await preparing
        return
    prepared = await preparing
    assert prepared.lines == ("Scale group slice from 2 to 1 for 1 s, without slice-0.",)


async def test_scale_down_and_isolation_leave_a_pod_that_was_replaced_alone(tmp_path: Path) -> None:
    """The request contains the UID of the pod in the plan."""
    backend = ScriptedBackend(replaced={TWO.name: "of-another"})
    group = WorkerGroup("workers", desired=2, ready=2, min=0, max=4)
    ground = ScriptedContext(
        [*trained(), GroupsListed(at_s=1.0, source="backend", groups=(group,))], backend
    )
    two = replace(ground.store.pods[TWO.name], uid="of-two", group="workers")
    order = Order("drill-1.1", {"for_s": 1.0}, Random(1))
    for name in ("scale-down", "network-isolate"):
        prepared = await fault(name).prepare(ground, Victims((two,)), order)
        with pytest.raises(ReplacedError, match=f"Pod {TWO.name} was replaced"):
            await prepared.apply()
    assert not backend.asked
    backend.replaced = {}
    for name in ("scale-down", "network-isolate"):
        prepared = await fault(name).prepare(ground, Victims((two,)), order)
        await prepared.apply()
    assert [call[0] for call in backend.asked] == ["scale", "isolate"]
