"""What can be known of a cluster that does not exist yet: room, quotas, queue, claims, objects."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from cockpit.format import bytes_text, plural, verb
from cockpit.model.new_cluster import NewCluster, NodeRoom, PodsOf, QuotaLeft
from cockpit.model.waiting import QueueEntry, amount
from cockpit.preflight.checks.placement import fits
from cockpit.preflight.demand import Demand
from cockpit.preflight.finding import Finding, State, listed

BOUND = "Bound"
KUBERAY = "Upgrade KubeRay's resource definitions and operator, or correct the cluster's spec."
NO_NAME = re.compile(r"\s|^$|:$|//")


def findings(new: NewCluster, demand: Demand) -> Iterator[Finding]:
    yield from accepted(new)
    yield from ranks(new, demand)
    yield from nodes(new)
    yield from quotas(new)
    if new.queue is not None:
        yield queue(new.queue)
    yield from claims(new)
    yield from references(new)
    yield from images(new)
    for why in new.unknown:
        yield Finding("not known", State.SKIPPED, why)


def accepted(new: NewCluster) -> Iterator[Finding]:
    if new.refused:
        found = f"The API server refuses it: {new.refused}"
        yield Finding("RayJob", State.FAILED, found, KUBERAY)
    elif new.is_accepted:
        yield Finding("RayJob", State.OK, "the API server accepts it (dry run)")


def ranks(new: NewCluster, demand: Demand) -> Iterator[Finding]:
    """Whether the pods that are created offer what the ranks reserve."""
    if demand.workers is None or demand.only_head:
        return
    per_pod = {of.group: fits(of.rank_cpus, of.rank_gpus, demand) for of in new.pods if of.group}
    there = sum(of.count * per_pod.get(of.group, 0) for of in new.pods)
    most = sum(max(of.count, of.most) * per_pod.get(of.group, 0) for of in new.pods)
    wanted = plural(demand.workers, "rank")
    if there >= demand.workers:
        yield Finding(
            "room",
            State.OK,
            f"{wanted} {verb(demand.workers, 'fit')} into the pods of the new cluster",
        )
        return
    if most >= demand.workers:
        found = f"{wanted}, room for {there} at first: Ray's autoscaler has to add pods."
        yield Finding("room", State.WARNING, found)
        return
    yield Finding(
        "room",
        State.FAILED,
        f"{wanted}, and the pods of the new cluster have room for {there}.",
        "Create more pods: --replicas GROUP=N; or launch fewer workers.",
    )


class _Free(Struct):
    """What is left of a node while pods are placed on it."""

    room: NodeRoom
    pods: float
    cpus: float
    memory_bytes: float
    gpus: float

    def takes(self, of: PodsOf) -> bool:
        return (
            of.group in self.room.takes
            and self.pods >= 1
            and self.cpus >= of.cpus
            and self.memory_bytes >= of.memory_bytes
            and self.gpus >= of.gpus
        )

    def take(self, of: PodsOf) -> None:
        self.pods -= 1
        self.cpus -= of.cpus
        self.memory_bytes -= of.memory_bytes
        self.gpus -= of.gpus


def placed(new: NewCluster) -> dict[str, int]:
    """By group, the pods that fit on the nodes: the largest first, each on the first that fits."""
    free = [_Free(of, of.pods, of.cpus, of.memory_bytes, of.gpus) for of in new.nodes or ()]
    found: dict[str, int] = {}
    for of in sorted(new.pods, key=lambda of: (-of.gpus, -of.memory_bytes, -of.cpus)):
        found[of.group] = 0
        for _ in range(of.count):
            node = next((each for each in free if each.takes(of)), None)
            if node is None:
                break
            node.take(of)
            found[of.group] += 1
    return found


def nodes(new: NewCluster) -> Iterator[Finding]:
    """A warning at most: a node autoscaler may add nodes, and other pods may end."""
    if new.nodes is None:
        return
    found = placed(new)
    count = sum(of.count for of in new.pods)
    short = next((of for of in new.pods if found[of.group] < of.count), None)
    place = "the room that other pods leave" if new.is_free else "the nodes, if they are empty"
    if short is None:
        yield Finding(
            "node room", State.OK, f"{plural(count, 'pod')} {verb(count, 'fit')} into {place}"
        )
        return
    what = f"group {short.group}" if short.group else "the head"
    asked = [plural(short.cpus, "CPU"), bytes_text(short.memory_bytes)]
    asked += [plural(short.gpus, "GPU")] if short.gpus else []
    if not any(short.group in node.takes for node in new.nodes):
        why = "no node matches its node selector and tolerations"
        fix = "Add a node, or change the node selector or the tolerations of the group."
    else:
        why = f"{found[short.group]} of {plural(short.count, 'pod')} fit into {place}"
        fix = "Add a node, end other pods, or ask for less: the pods wait for room."
    text = f"{what[:1].upper()}{what[1:]} ({', '.join(asked)} a pod): {why}."
    yield Finding("node room", State.WARNING, text, fix)


def quotas(new: NewCluster) -> Iterator[Finding]:
    short = [each for each in new.quotas if each.asked > each.left]
    if short:
        parts = ", ".join(_of_quota(each) for each in short)
        yield Finding(
            "quota",
            State.FAILED,
            f"{listed(each.quota for each in short)} is too small for the new cluster: {parts}.",
            f"Raise the quota {short[0].quota} of the namespace, or create fewer pods.",
        )
    elif new.quotas:
        yield Finding("quota", State.OK, f"{listed(each.quota for each in new.quotas)} has room")


def _of_quota(each: QuotaLeft) -> str:
    show = bytes_text if each.resource.endswith("memory") else "{:g}".format
    return f"{each.resource} {show(each.asked)} of {show(each.left)} left"


def queue(entry: QueueEntry) -> Finding:
    """Whether the queue can admit all pods of the cluster together."""
    name = f"queue {entry.queue}"
    if entry.queue_problem:
        found = f"{name}: {entry.queue_problem}."
        return Finding(name, State.FAILED, found, "Use a queue that exists and is open.")
    never = [use for use in entry.quota if use.asked > use.most]
    if never:
        parts = ", ".join(
            f"{amount(use.asked, use.resource)} of at most {amount(use.most, use.resource)}"
            for use in never
        )
        found = f"It can never admit the new cluster: {parts}."
        return Finding(name, State.FAILED, found, "Use another queue, or create fewer pods.")
    if short := [use for use in entry.quota if use.is_short]:
        parts = ", ".join(
            f"{use.in_use}, and the cluster asks for {amount(use.asked, use.resource)}"
            for use in short
        )
        return Finding(name, State.WARNING, f"The cluster waits in it: {parts}.")
    others = (entry.waiting or 1) - 1
    if others:
        found = f"It has room, but {plural(others, 'workload')} may be admitted before."
        return Finding(name, State.WARNING, found)
    return Finding(name, State.OK, "it has room for all pods of the new cluster")


def claims(new: NewCluster) -> Iterator[Finding]:
    wrong = [each for each in new.claims if each.phase != BOUND]
    for each in wrong:
        state = f"is {each.phase}" if each.phase else "cannot be read or does not exist"
        why = f": {each.message}" if each.message else ""
        found = f"Claim {each.name} {state}{why}."
        fix = "Check the claim and its storage class: kubectl describe pvc"
        yield Finding("claim", State.WARNING if each.phase else State.FAILED, found, fix)
    if new.claims and not wrong:
        yield Finding("claim", State.OK, f"{listed(each.name for each in new.claims)} is bound")


def references(new: NewCluster) -> Iterator[Finding]:
    if new.missing:
        found = (
            f"Missing in the namespace: {listed(new.missing)}. The pods cannot start without them."
        )
        fix = "Create them, or change the cluster that is copied."
        yield Finding("objects", State.FAILED, found, fix)
    elif new.unread:
        yield Finding(
            "objects", State.SKIPPED, f"You do not have permission to read {listed(new.unread)}."
        )
    else:
        yield Finding("objects", State.OK, "Secrets, ConfigMaps and accounts of the pods exist")


def images(new: NewCluster) -> Iterator[Finding]:
    """By name alone: the registry is known to the nodes only."""
    names = dict.fromkeys(of.image for of in new.pods)
    invalid = [name for name in names if NO_NAME.search(name)]
    if invalid:
        found = f"{invalid[0]!r} is not the name of an image."
        yield Finding("image", State.FAILED, found, "Use NAME:TAG or NAME@DIGEST.")
        return
    moving = [name for name in names if _tag(name) in ("", "latest")]
    if moving:
        found = f"{listed(moving)} has no fixed tag: pods may get different versions."
        yield Finding("image", State.WARNING, found, "Use NAME:TAG or NAME@DIGEST.")
    elif len(names) > 1:
        found = f"The pods have different images: {listed(names)}."
        yield Finding("image", State.WARNING, found, "Use the same versions of Python and Ray.")
    else:
        yield Finding("image", State.OK, listed(names))


def _tag(name: str) -> str:
    if "@" in name:
        return name.partition("@")[2]
    return name.rpartition("/")[2].partition(":")[2]
