"""Where ranks can be placed: room in the worker groups, GPUs, and the head."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from cockpit.format import plural, verb
from cockpit.launch.capacity import times
from cockpit.model.cluster import NodeType, Pod, QuotaRoom, Resources, WorkerGroup
from cockpit.preflight.demand import Demand
from cockpit.preflight.facts import Facts
from cockpit.preflight.finding import Finding, State, listed
from cockpit.preflight.target import Target


def fits(cpus: float, gpus: float, demand: Demand) -> int:
    """Ranks that fit into these resources; without any requirement, as many as there are."""
    counts = [
        times(there, each) for there, each in ((cpus, demand.cpus), (gpus, demand.gpus)) if each > 0
    ]
    return min(counts) if counts else demand.workers or 1


def ranks_on(target: Target, demand: Demand) -> dict[str, int]:
    """By pod, the largest number of ranks that Ray may place there."""
    if demand.only_head:
        return {target.head.name: 1} if target.head is not None else {}
    room = {pod.name: fits(target.cpus(pod), target.gpus(pod), demand) for pod in target.pods}
    most = demand.workers
    if most is not None and demand.spread and target.workers:
        takes_ranks = [pod for pod in target.workers if room.get(pod.name)]  # no pod of drivers
        most = math.ceil(most / max(1, len(takes_ranks)))
    return {pod: count if most is None else min(count, most) for pod, count in room.items()}


def ready(target: Target) -> Iterator[Finding]:
    if target.head is None:
        found = "No head pod is ready: nothing can be launched."
        yield Finding("pods", State.FAILED, found, "See: cockpit pods")
    elif target.waiting:
        count = len(target.workers) + target.waiting
        found = f"{len(target.workers)} of {plural(count, 'worker pod')} ready: others not checked."
        yield Finding("pods", State.WARNING, found, "See: cockpit pods")
    else:
        found = f"the head and {plural(len(target.workers), 'worker pod')} are ready"
        yield Finding("pods", State.OK, found)


def head(target: Target, demand: Demand) -> Iterator[Finding]:
    """The head needs its memory for the driver, Ray Train's controller and Ray itself."""
    if target.head is None or demand.only_head:
        return
    node = target.node(target.head)
    if node is None:
        found = "Ray has not reported the resources of the head."
        yield Finding("ranks on the head", State.SKIPPED, found)
        return
    cpus, gpus = node.resources.get("CPU", 0.0), node.resources.get("GPU", 0.0)
    count = fits(cpus, gpus, demand) if demand.cpus or demand.gpus else int(cpus)
    if count < 1:
        yield Finding("ranks on the head", State.OK, "the head has no room for ranks")
        return
    offers = " and ".join(
        plural(there, name) for there, name in ((cpus, "CPU"), (gpus, "GPU")) if there
    )
    yield Finding(
        "ranks on the head",
        State.WARNING,
        f"The head offers {offers}: it may get {plural(count, 'rank')} beside the driver.",
        'Set num-cpus: "0" in rayStartParams of headGroupSpec, or cpus = 0 in a hosts file.',
        (target.head.name,),
    )


def room(target: Target, demand: Demand, *, bounded: bool = True) -> Iterator[Finding]:
    """Now, and at the groups' maximum. `bounded`: the groups have a maximum."""
    wanted = demand.workers
    if wanted is None or demand.only_head or not target.pods:
        return
    now = sum(fits(target.cpus(pod), target.gpus(pod), demand) for pod in target.pods)
    if now >= wanted:
        count = plural(len(target.workers), "worker pod")
        yield Finding(
            "room", State.OK, f"{plural(wanted, 'rank')} {verb(wanted, 'fit')} into {count}"
        )
        return
    most = sum(group.max * _in_pod(group, target, demand) for group in target.groups)
    each = _each(demand)
    if bounded and target.groups and most < wanted and now < wanted:
        yield Finding(
            "room",
            State.FAILED,
            f"{plural(wanted, 'rank')} with {each} each; the worker groups have room for "
            f"{max(most, now)} at their maximum.",
            "Raise the group's max: cockpit scale GROUP N --max N; or launch fewer workers.",
        )
        return
    grows = next((group for group in target.groups if group.autoscaled), None)
    if grows is not None:
        found = f"{plural(wanted, 'rank')}, room for {now}: Ray's autoscaler has to add pods."
        yield Finding("room", State.WARNING, found)
        return
    group = max(target.groups, key=lambda one: one.max - one.desired, default=None)
    fix = ""
    if group is not None and bounded and (per_pod := _in_pod(group, target, demand)):
        pods = group.desired + math.ceil((wanted - now) / per_pod)
        fix = f"Scale first: cockpit scale {group.name} {min(pods, group.max)}"
    yield Finding(
        "room", State.WARNING, f"{plural(wanted, 'rank')}, room for {now}: the job waits.", fix
    )


def quota(
    quotas: Sequence[QuotaRoom] | None, target: Target, demand: Demand, why_not: str = ""
) -> Iterator[Finding]:
    """Whether the namespace's quotas allow the pods that the ranks still need."""
    if quotas is None:
        yield Finding("quota", State.SKIPPED, why_not)
        return
    groups = {group.name: group for group in target.groups}
    of = [one for one in quotas if one.group in groups]
    if not of:
        return
    now = sum(fits(target.cpus(pod), target.gpus(pod), demand) for pod in target.pods)
    lacking = 0 if demand.workers is None or demand.only_head else demand.workers - now
    by_group = {name: [one for one in of if one.group == name] for name in groups}
    allowed = {
        name: min(one.pods for one in of_group) for name, of_group in by_group.items() if of_group
    }
    more = sum(_in_pod(groups[name], target, demand) * pods for name, pods in allowed.items())
    least = min(of, key=lambda one: one.pods)
    found = (
        f"{least.quota} allows {plural(least.pods, 'more pod')} of group {least.group} "
        f"({least.resource})"
    )
    if lacking <= 0 or more >= lacking or len(allowed) < len(groups):
        yield Finding("quota", State.OK, found)
        return
    fix = f"Raise the quota: kubectl describe resourcequota {least.quota}"
    words = f"{found}; {plural(lacking, 'rank')} more need room."
    yield Finding("quota", State.FAILED, words, fix)


def _in_pod(group: WorkerGroup, target: Target, demand: Demand) -> int:
    """As Ray reports a pod of the group, else as the group is described."""
    pod = next((one for one in target.workers if one.group == group.name), None)
    if pod is not None:
        return fits(target.cpus(pod), target.gpus(pod), demand)
    offers: Resources = group.resources
    return fits(offers.cpus, offers.gpus, demand)


def _each(demand: Demand) -> str:
    parts = [
        plural(count, name) for count, name in ((demand.cpus, "CPU"), (demand.gpus, "GPU")) if count
    ]
    return " and ".join(parts) or "no resources"


def gpus(facts: Mapping[str, Facts], target: Target, demand: Demand) -> Iterator[Finding]:
    """What Kubernetes and Ray were asked for, against what the pod sees."""
    fewer: dict[str, str] = {}
    seen_in_all = 0
    for pod in target.pods:
        pod_facts = facts.get(pod.name)
        if pod_facts is None:
            continue
        seen_in_all += pod_facts.gpus
        asked = max(pod.gpus, target.gpus(pod))
        if pod_facts.gpus < asked:
            fewer[pod.name] = f"{plural(asked, 'GPU')}, but sees {pod_facts.gpus}"
    if fewer:
        first, what = next(iter(fewer.items()))
        yield Finding(
            "GPUs",
            State.FAILED,
            f"{listed(fewer)}: {first} was given {what}.",
            "Check the device plugin of its node: cockpit exec POD -- nvidia-smi",
            tuple(fewer),
        )
        return
    offered = sum(target.gpus(pod) for pod in target.workers)
    if demand.gpus and offered <= 0:
        hidden = [pod.name for pod in target.workers if _sees(pod, facts)]
        yield Finding(
            "GPUs",
            State.FAILED,
            f"{listed(hidden)} {verb(len(hidden), 'see')} GPUs that Ray was not started with."
            if hidden
            else "The job uses GPUs, and no worker pod offers one.",
            "Set num-gpus in rayStartParams, or the limit nvidia.com/gpu of the pods.",
            tuple(hidden),
        )
    elif demand.gpus or seen_in_all:
        yield Finding("GPUs", State.OK, f"{plural(seen_in_all, 'GPU')} in the pods")


def _sees(pod: Pod, facts: Mapping[str, Facts]) -> bool:
    pod_facts = facts.get(pod.name)
    return pod.node_type is NodeType.WORKER and pod_facts is not None and pod_facts.gpus > 0
