"""Faults of the cluster itself: a drain, an eviction, a preemption, a scale-down."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping

from cockpit.backends.protocol import Backend
from cockpit.drills.faults.fault import (
    NO_EXEC,
    Aim,
    DrillContext,
    Fault,
    Order,
    Parameter,
    Prepared,
    Undo,
    Victims,
)
from cockpit.drills.faults.pods import named
from cockpit.format import in_seconds
from cockpit.model.cluster import NodeType
from cockpit.model.error import CockpitError, NotAllowedError
from cockpit.model.scale import ScaleRequest, plan_scale
from cockpit.model.text import one_line
from cockpit.store.store import Store

PREEMPTION = "DRAIN_NODE_REASON_PREEMPTION"
"""The only reason for which Ray drains a busy node (autoscaler.proto)."""
REFUSED = "drain request is not accepted"
"""In what `ray drain-node` prints then (ray/scripts/scripts.py)."""


class DrainRefusedError(CockpitError):
    """Ray did not accept the drain: the node continues as before."""


async def _draining(
    context: DrillContext, victims: Victims, order: Order, deadline_s: float
) -> tuple[Callable[[], Awaitable[None]], Callable[[Undo], bool]]:
    """Drains the Ray nodes of the victims; checks whether the node of an undo's pod was drained."""
    head, nodes = await context.ask(lambda store: _ray_nodes(store, victims))
    drained: set[str] = set()

    async def apply() -> None:
        for pod, node in nodes.items():
            drained.add(pod)
            try:
                await drain(context.backend, head, node, deadline_s, order.drill_id)
            except DrainRefusedError:
                drained.discard(pod)
                raise

    return apply, lambda undo: undo.pod in drained


async def node_drain(context: DrillContext, victims: Victims, order: Order) -> Prepared:
    """Drain the Ray nodes with a deadline, without killing any process.

    Ray declares such a node dead at the deadline and never uses it again, though its pod continues
    to run: it is not ready until it is replaced.
    """
    deadline_s = float(order.values["deadline_s"])
    apply, took_effect = await _draining(context, victims, order, deadline_s)
    return Prepared(
        lines=tuple(
            f"Drain the Ray node of {named(pod)}, with a deadline in {in_seconds(deadline_s)}."
            for pod in victims.pods
        ),
        apply=apply,
        undo=_replaced(victims, "so that it is replaced"),
        took_effect=took_effect,
        # Ray declares the node dead after a delay.
        lasts_s=deadline_s + 1.0,
        parameters=order.used,
    )


def _replaced(victims: Victims, then: str) -> tuple[Undo, ...]:
    return tuple(
        Undo(
            "replace",
            f"delete pod {pod.name}, whose Ray node is drained, {then}",
            pod=pod.name,
            uid=pod.uid,
        )
        for pod in victims.pods
    )


async def spot_preemption(context: DrillContext, victims: Victims, order: Order) -> Prepared:
    """A spot instance: its notice, as a drain with a deadline, and at the deadline its end.

    The undo is for a drill that ends before: a drained node is never used again.
    """
    notice_s = float(order.values["notice_s"])
    notice, is_drained = await _draining(context, victims, order, notice_s)
    killed: set[str] = set()

    async def end() -> None:
        await asyncio.sleep(notice_s)
        for pod in victims.pods:
            await context.backend.delete_pod(pod.name, uid=pod.uid, grace_s=0.0)
            killed.add(pod.name)

    return Prepared(
        lines=tuple(
            f"Give notice to {named(pod)} (a drain), and kill it after {in_seconds(notice_s)}."
            for pod in victims.pods
        ),
        apply=notice,
        meanwhile=end,
        undo=_replaced(victims, "if it still exists"),
        took_effect=lambda undo: is_drained(undo) and undo.pod not in killed,
        # A little more than the notice: the kill is part of the fault.
        lasts_s=notice_s + 1.0,
        parameters=order.used,
    )


async def evict(context: DrillContext, victims: Victims, order: Order) -> Prepared:
    """`kubectl drain` of the node, for the pods of this cluster on it."""
    grace_s, for_s = float(order.values["grace_s"]), float(order.values["for_s"])
    cordons = bool(order.values["cordon"])
    await _require(context.backend, *(("evict", "cordon") if cordons else ("evict",)))
    hosts = tuple(dict.fromkeys(pod.host for pod in victims.pods if pod.host))
    unknown = [pod.name for pod in victims.pods if not pod.host]
    if cordons and unknown:
        raise CockpitError(f"Pod {unknown[0]} is on no node yet.")
    nodes = await context.ask(lambda store: dict(store.kubernetes_nodes))
    cordoned = {name for name, node in nodes.items() if node.cordoned}
    uids = {name: node.uid for name, node in nodes.items()}
    fresh = tuple(host for host in hosts if host not in cordoned) if cordons else ()
    asked: set[str] = set()
    """The nodes that this drill has cordoned, or may have."""

    async def apply() -> None:
        now = await context.ask(lambda store: dict(store.kubernetes_nodes))
        for host in fresh:
            if host not in now or not now[host].cordoned:  # otherwise it stays so after the drill
                asked.add(host)
                await context.backend.cordon(host, True, uid=uids.get(host, ""))
        for pod in victims.pods:
            await context.backend.evict_pod(pod.name, uid=pod.uid, grace_s=grace_s)

    return Prepared(
        lines=(
            *(f"Cordon node {host} for {in_seconds(for_s)}." for host in fresh),
            *(f"Evict {named(pod)}, grace {in_seconds(grace_s)}." for pod in victims.pods),
        ),
        apply=apply,
        undo=tuple(
            Undo("uncordon", f"uncordon node {h}", name=h, uid=uids.get(h, "")) for h in fresh
        ),
        took_effect=lambda undo: undo.name in asked,
        lasts_s=for_s if fresh else 0.0,
        grace_s=grace_s,
        parameters=order.used,
    )


async def scale_down(context: DrillContext, victims: Victims, order: Order) -> Prepared:
    """A user or an autoscaler removes workers during a run."""
    for_s = float(order.values["for_s"])
    leaving: dict[str, list[str]] = {}
    uids: dict[str, list[str]] = {}
    for pod in victims.pods:
        leaving.setdefault(pod.group, []).append(pod.name)
        uids.setdefault(pod.group, []).append(pod.uid)
    groups = await context.ask(lambda store: {name: store.groups.get(name) for name in leaving})
    uid = await context.ask(lambda store: store.uid)
    before: dict[str, int] = {}
    after: dict[str, int] = {}
    for name, pods in leaving.items():
        group = groups[name]
        if group is None:
            raise CockpitError(f"Worker group {one_line(name)} no longer exists.")
        lost = len({pod.replica or pod.name for pod in victims.pods if pod.group == name})
        wanted = group.desired // group.hosts - lost
        plan = plan_scale(group, wanted, remove=pods)
        if plan.after != wanted:
            raise CockpitError(
                f"Group {name} cannot be scaled down by {lost}.",
                f"It has {plan.before}, and its min is {plan.low}.",
                f"Lower it first: cockpit scale {name} --min {wanted}",
            )
        before[name], after[name] = plan.before, wanted

    async def apply() -> None:
        for name, pods in leaving.items():
            request = ScaleRequest(
                name,
                after[name],
                remove=tuple(pods),
                remove_uids=tuple(uids[name]),
                uid=uid,
                expected=before[name],
            )
            await context.backend.scale(request)

    return Prepared(
        lines=tuple(
            f"Scale group {name} from {before[name]} to {after[name]} for "
            f"{in_seconds(for_s)}, without {', '.join(pods)}."
            for name, pods in leaving.items()
        ),
        apply=apply,
        undo=tuple(
            Undo(
                "scale",
                f"scale group {name} from {after[name]} back to {n}",
                name=name,
                uid=uid,
                replicas=n,
                drilled=after[name],
            )
            for name, n in before.items()
        ),
        lasts_s=for_s,
        parameters=order.used,
    )


async def drain(backend: Backend, head: str, node_id: str, deadline_s: float, why: str) -> None:
    """`ray drain-node` on the head. Raises CockpitError with Ray's message when it is refused."""
    done = await backend.exec(
        head,
        (
            *("python", "-m", "ray.scripts.scripts", "drain-node", "--node-id", node_id),
            *("--reason", PREEMPTION, "--reason-message", f"cockpit {why}"),
            *("--deadline-remaining-seconds", str(max(1, math.ceil(deadline_s)))),
        ),
    )
    if done.exit_code:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        why = one_line(said[-1]) if said else ""
        kind = DrainRefusedError if REFUSED in why else CockpitError
        raise kind(f"Ray does not drain node {node_id[:8]}.", why)


def _ray_nodes(store: Store, victims: Victims) -> tuple[str, Mapping[str, str]]:
    """The head pod, and the living Ray node's id by the name of each victim."""
    heads = [p.name for p in store.pods.values() if p.node_type is NodeType.HEAD and p.ready]
    if not heads:
        raise CockpitError("No head pod is ready.", todo="See: cockpit pods")
    by_ip = {node.ip: node.id for node in store.nodes.values() if node.alive}
    missing = [pod.name for pod in victims.pods if pod.ip not in by_ip]
    if missing:
        raise CockpitError(f"Pod {missing[0]} has no living Ray node.", todo="See: cockpit nodes")
    return heads[0], {pod.name: by_ip[pod.ip] for pod in victims.pods}


async def _require(backend: Backend, *verbs: str) -> None:
    able = await backend.capabilities()
    for verb in verbs:
        if verb in able and not able[verb].allowed:
            raise NotAllowedError(f"This fault needs to {verb}.", one_line(able[verb].why_not))


FOR = Parameter("for_s", 30.0, "duration of the fault in seconds")

FAULTS = (
    Fault(
        "node-drain", "drain a Ray node with a deadline; no process is killed", Aim.POD,
        node_drain, (Parameter("deadline_s", 30.0, "seconds until the deadline of the drain"),),
        needs=("exec in the head pod", "delete pods"), ends_by_itself=False,
        undo="the pod is replaced after deadline_s", unavailable=NO_EXEC,
    ),
    Fault(
        "spot-preemption", "drain a Ray node, and kill its pod at the deadline of the drain",
        Aim.POD, spot_preemption,
        (Parameter("notice_s", 30.0, "seconds between the drain and the kill"),),
        needs=("exec in the head pod", "delete pods"), repair="the pod is replaced",
        ends_by_itself=False, unavailable=NO_EXEC,
    ),
    Fault(
        "evict", "cordon the pod's node and evict the pod, as kubectl drain does", Aim.POD, evict,
        (
            Parameter("grace_s", 30.0, "seconds between SIGTERM and SIGKILL"),
            Parameter("cordon", True, "whether the node is cordoned during the fault"),
            FOR,
        ),
        needs=("evict pods", "cordon nodes"), ends_by_itself=False,
        undo="the node is uncordoned after for_s",
        unavailable=dict.fromkeys(("local", "address", "ssh"), "it is not on Kubernetes"),
    ),
    Fault(
        "scale-down", "scale a worker group down during a run", Aim.POD, scale_down,
        (FOR,), needs=("scale worker groups",), ends_by_itself=False,
        undo="the group is scaled back up after for_s",
        unavailable={"address": "cockpit cannot scale its worker groups"},
    ),
)  # fmt: skip
