"""Why a cluster, a job, a worker group or a pod waits: one chain from the queue to a ready pod.

Pure functions of what was reported. The chain of a group counts its pods by stage: a stage is done
when all pods have passed it, and blocks while one is at it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cockpit.format import plural
from cockpit.insight.waiting import advice
from cockpit.model.cluster import ClusterHealth, Pod
from cockpit.model.event import Notice, QueuesListed
from cockpit.model.run import Job
from cockpit.model.waiting import (
    POD_STAGES,
    Chain,
    ClaimState,
    Link,
    LinkState,
    QueueEntry,
    QueueState,
    WaitStage,
    amount,
    ordinal,
)
from cockpit.store.store import Store

DONE, BLOCKING, LATER, UNKNOWN = (
    LinkState.DONE,
    LinkState.BLOCKING,
    LinkState.LATER,
    LinkState.UNKNOWN,
)
_VOLUME_EVENTS = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_PULL_EVENTS = ("Pulling", "Pulled", "Failed", "BackOff")


class Facts(Struct, frozen=True):
    """What is known of the pods of one object, and of the queue in front of them.

    `desired`: how many pods it is to have, None for a single pod or if unknown. `queue`: the name
    in its label. `refused`: why pods cannot be created.
    """

    queue: str = ""
    entry: QueueEntry | None = None
    pods: Sequence[Pod] = ()
    desired: int | None = None
    suspended: bool = False
    refused: str = ""
    notices: Sequence[Notice] = ()
    claims: Sequence[ClaimState] = ()
    missing: Sequence[str] = ()
    queues_known: bool = True
    backend: str = "kuberay"


def cluster_chain(store: Store) -> Chain:
    """Of all pods of the cluster."""
    name = store.ref.name if store.ref is not None else ""
    wanted = 1 + sum(group.desired for group in store.groups.values())
    return chain("cluster", name, _facts(store, list(store.pods.values()), wanted))


def group_chain(store: Store, name: str) -> Chain:
    """Of the pods of one worker group. LookupError if there is no such group."""
    group = store.groups[name]
    pods = [pod for pod in store.pods.values() if pod.group == name]
    return chain("group", name, _facts(store, pods, group.desired))


def pod_chain(store: Store, name: str) -> Chain:
    """LookupError if there is no such pod."""
    pod = store.pods[name]
    facts = _facts(store, [pod], None)
    own = entry_of(store.queues, "Pod", name)
    return chain("pod", name, facts if own is None else replace(facts, entry=own))


def job_chain(store: Store, job: Job, own: Store | None = None) -> Chain:
    """Of a RayJob. `own`: the store of its own cluster, if it is not the watched one."""
    name = job.rayjob or job.id
    entry = entry_of(store.queues, "RayJob", job.rayjob)
    known = store if store.ref is not None and job.cluster == store.ref.name else own
    facts = Facts(
        queue=job.queue,
        entry=entry,
        missing=store.queues.missing,
        queues_known=bool(store.queues.source),
    )
    if known is not None:
        wanted = 1 + sum(group.desired for group in known.groups.values())
        beside = _facts(known, list(known.pods.values()), wanted)
        facts = replace(
            beside,
            queue=job.queue or beside.queue,
            entry=entry or beside.entry,
            # The cluster of a job in a queue is suspended with it.
            suspended=beside.suspended and not job.queue,
            queues_known=facts.queues_known,
        )
    return chain("job", name, facts)


def entry_of(queues: QueuesListed, kind: str, name: str) -> QueueEntry | None:
    """The workload of an object that is first in the chain: Kueue decides before Volcano."""
    found = [entry for entry in queues.entries if (entry.owner_kind, entry.owner) == (kind, name)]
    return min(found, key=lambda entry: entry.manager, default=None)


def _facts(store: Store, pods: Sequence[Pod], desired: int | None) -> Facts:
    name = store.ref.name if store.ref is not None else ""
    living = [pod for pod in pods if pod.ended_s is None]
    short = desired is not None and len(living) < desired
    names = {pod.name for pod in living}
    return Facts(
        queue=store.queue,
        entry=entry_of(store.queues, "RayCluster", name),
        pods=living,
        desired=desired,
        suspended=store.health is ClusterHealth.SUSPENDED,
        refused=store.health_message if short else "",
        notices=[note for note in store.notices if note.kind == "Pod" and note.name in names],
        claims=store.queues.claims,
        missing=store.queues.missing,
        queues_known=bool(store.queues.source),
        backend=store.ref.backend if store.ref is not None else "kuberay",
    )


def chain(kind: str, name: str, facts: Facts) -> Chain:
    """The links in order. Stages that do not apply are left out."""
    links = _queue_links(facts)
    if facts.suspended and not (facts.queue or facts.entry):
        links.append(Link(WaitStage.SUSPENDED, BLOCKING, "spec.suspend is set.", advice.SUSPENDED))
    admitted = facts.entry is None or facts.entry.state is QueueState.ADMITTED
    if facts.desired is not None and (admitted or facts.pods):
        links.append(_created(facts))
    elif facts.desired is not None:
        links.append(Link(WaitStage.PODS, LATER, ""))
    if facts.entry is not None and (gang := _gang(facts)) is not None:
        links.append(gang)
    links += _pod_links(facts)
    links = _ordered(links, admitted=admitted)
    return Chain(kind, name, tuple(links), _summary(facts, links))


def _summary(facts: Facts, links: Sequence[Link]) -> str:
    blocking = next((link for link in links if link.state is BLOCKING), None)
    if blocking is None:
        return ""
    if facts.entry is not None and blocking.stage in _OF_QUEUE and facts.entry.summary:
        return facts.entry.summary
    return f"{blocking.stage}: {blocking.text}".rstrip(".")


_OF_QUEUE = (WaitStage.QUEUE, WaitStage.POSITION, WaitStage.QUOTA, WaitStage.CHECK)


def _ordered(links: Iterable[Link], *, admitted: bool) -> list[Link]:
    """Stages after a blocking one come later, except those of the queue, which block together."""
    found: list[Link] = []
    blocked = False
    for link in links:
        is_later = blocked and not (link.stage in _OF_QUEUE and not admitted)
        if is_later and link.state is not DONE:
            text = link.text if link.state is BLOCKING else ""
            link = Link(link.stage, LATER, text)
        blocked = blocked or link.state is BLOCKING
        found.append(link)
    return found


# -- the queue


def _queue_links(facts: Facts) -> list[Link]:
    entry = facts.entry
    if entry is None:
        if facts.missing and facts.queue:
            return [Link(WaitStage.QUEUE, UNKNOWN, _missing(facts), advice.RIGHTS)]
        if not facts.queue or facts.pods:
            return []  # without a queue, or as a part of a RayJob that is in one
        if not facts.queues_known:
            return [Link(WaitStage.QUEUE, UNKNOWN, f"Queue {facts.queue} is not read yet.")]
        text = f"Its label names queue {facts.queue}, but it has no workload in the queue."
        return [Link(WaitStage.QUEUE, BLOCKING, text, advice.NO_WORKLOAD)]
    links = [_queue(entry, facts)]
    if entry.state in (QueueState.FINISHED, QueueState.EVICTED, QueueState.INACTIVE):
        return links
    if entry.state is QueueState.PENDING and not entry.queue_problem:
        links.append(_position(entry))
    if not entry.queue_problem and (entry.manager == "kueue" or entry.quota):
        links.append(_quota(entry))
    if entry.checks and entry.state is not QueueState.PENDING:
        links.append(_checks(entry))
    return links


def _queue(entry: QueueEntry, facts: Facts) -> Link:
    kind = "Workload" if entry.manager == "kueue" else "PodGroup"
    manager = entry.manager.capitalize()
    if entry.queue_problem:
        todo = advice.queue_problem(entry)
        return Link(WaitStage.QUEUE, BLOCKING, f"{_sentence(entry.queue_problem)}", todo)
    if entry.state is QueueState.INACTIVE:
        why = f": {entry.message}" if entry.message else ""
        text = f"Kueue has deactivated {kind} {entry.workload}{why}"
        return Link(WaitStage.QUEUE, BLOCKING, _sentence(text), advice.inactive(entry))
    if entry.state is QueueState.EVICTED:
        text = f"{kind} {entry.workload} was evicted, and is being stopped: {entry.eviction}"
        return Link(WaitStage.QUEUE, BLOCKING, _sentence(text), advice.eviction(entry.eviction))
    if entry.state is QueueState.FINISHED:
        return Link(WaitStage.QUEUE, DONE, f"{kind} {entry.workload} is finished.")
    if entry.manager == "kueue":
        text = f"In LocalQueue {entry.queue}"
        text += f" of ClusterQueue {entry.cluster_queue}" if entry.cluster_queue else ""
        text += f", cohort {entry.cohort}" if entry.cohort else ""
    else:
        text = f"In queue {entry.queue} of {manager}"
    if entry.eviction:
        text += f". It was evicted before: {entry.eviction}"
    if facts.missing:
        text += f". Incomplete: {_missing(facts)}"
    return Link(WaitStage.QUEUE, DONE, _sentence(text))


def _position(entry: QueueEntry) -> Link:
    if entry.position is None:
        return Link(WaitStage.POSITION, UNKNOWN, "Its position is not known.")
    count = f" of {entry.waiting} waiting" if entry.waiting else ""
    where = f"ClusterQueue {entry.cluster_queue}" if entry.cluster_queue else entry.queue
    text = f"{ordinal(entry.position).capitalize()}{count} in {where}, priority {entry.priority}"
    if entry.computed:
        order = "priority and creation time" if entry.manager == "kueue" else "creation time"
        text += f" (computed from {order} in this namespace)"
    ahead = entry.position - 1
    if not ahead:
        return Link(WaitStage.POSITION, DONE, f"{text}.")
    if entry.strict:
        return Link(WaitStage.POSITION, BLOCKING, f"{text}. {advice.STRICT}", advice.ahead(entry))
    fits = bool(entry.quota) and not any(use.is_short for use in entry.quota)
    state = BLOCKING if fits or not (entry.quota or entry.message) else DONE
    return Link(WaitStage.POSITION, state, f"{text}.", advice.ahead(entry))


def _quota(entry: QueueEntry) -> Link:
    if entry.state is not QueueState.PENDING:
        shown = [amount(use.asked, use.resource) for use in entry.quota if use.resource != "pods"]
        what = f": {', '.join(shown)}" if shown else ""
        return Link(WaitStage.QUOTA, DONE, f"Its quota is reserved{what}.")
    short = [use for use in entry.quota if use.is_short]
    if not entry.quota:
        state = BLOCKING if entry.message else UNKNOWN
        text = f"Not reserved. {_reported(entry)}" if entry.message else "The quota is not known."
        return Link(WaitStage.QUOTA, state, text, advice.quota(entry))
    if not short:
        use = entry.quota[0]
        text = f"{use.in_use}; there is room for the {amount(use.asked, use.resource)} it asks for."
        reported = f" {_reported(entry)}" if entry.message else ""
        state = BLOCKING if entry.position == 1 and entry.message else LATER
        return Link(WaitStage.QUOTA, state, text + reported, advice.quota(entry))
    parts = []
    for use in short:
        part = f"{use.in_use}, it asks for {amount(use.asked, use.resource)}"
        if use.asked > use.most:
            part += f", and the queue can never give more than {amount(use.most, use.resource)}"
        elif use.room > max(0.0, use.nominal - use.used):
            part += f", {amount(use.room, use.resource)} free with what it may borrow"
        elif use.used > use.nominal:
            part += f", {amount(use.used - use.nominal, use.resource)} of them borrowed"
        if use.flavor:
            part += f" (flavor {use.flavor})"
        parts.append(part)
    return Link(WaitStage.QUOTA, BLOCKING, "; ".join(parts) + ".", advice.quota(entry))


def _checks(entry: QueueEntry) -> Link:
    waits = [check for check in entry.checks if check.state != "Ready"]
    if not waits or entry.state is QueueState.ADMITTED:
        return Link(WaitStage.CHECK, DONE, f"{plural(len(entry.checks), 'check')} passed.")
    text = "; ".join(
        f"{check.name} is {check.state}" + (f": {check.message}" if check.message else "")
        for check in waits
    )
    return Link(WaitStage.CHECK, BLOCKING, _sentence(text), advice.CHECK)


def _gang(facts: Facts) -> Link | None:
    """Volcano places all pods of a PodGroup together; Kueue may wait until all are ready."""
    entry = facts.entry
    if entry is None or entry.state is not QueueState.ADMITTED or not entry.pods:
        return None
    if entry.manager == "kueue":
        if entry.running is None and not entry.message:
            return None  # waitForPodsReady is off
        if entry.running is not None:
            return Link(WaitStage.GANG, DONE, f"All {plural(entry.pods, 'pod')} are ready.")
        text = f"Kueue waits until all {plural(entry.pods, 'pod')} are ready: {entry.message}"
        return Link(WaitStage.GANG, UNKNOWN, _sentence(text), advice.PODS_READY)
    running = entry.running or 0
    text = f"{running} of {entry.pods} pods run; all of them start together"
    if running >= entry.pods:
        return Link(WaitStage.GANG, DONE, f"{text}.")
    if entry.message:
        text += f". Volcano: {entry.message}"
    placed = all(pod.host for pod in facts.pods) and len(facts.pods) >= entry.pods
    state = DONE if placed else BLOCKING
    return Link(WaitStage.GANG, state, _sentence(text), advice.GANG)


# -- the pods


def _created(facts: Facts) -> Link:
    wanted, made = facts.desired or 0, len(facts.pods)
    text = f"{made} of {plural(wanted, 'pod')} created."
    if made >= wanted:
        return Link(WaitStage.PODS, DONE, text)
    if facts.refused and not facts.suspended:
        text = f"{text[:-1]}: {facts.refused}."
    return Link(WaitStage.PODS, BLOCKING, text, advice.pods(facts.refused, facts.backend))


def _pod_links(facts: Facts) -> list[Link]:
    pods = facts.pods
    if not pods:
        return [Link(stage, LATER, "") for stage in POD_STAGES]
    at = {pod.name: _stage(pod, facts.notices) for pod in pods}
    links: list[Link] = []
    for number, stage in enumerate(POD_STAGES):
        here = [pod for pod in pods if at[pod.name] == stage and not pod.ready]
        before = [pod for pod in pods if _number(at[pod.name]) < number]
        links.append(_pod_link(stage, here, before, facts))
    return links


def _pod_link(stage: WaitStage, here: Sequence[Pod], before: Sequence[Pod], facts: Facts) -> Link:
    single = facts.desired is None
    total = len(facts.pods)
    if here:
        if stage is WaitStage.VOLUME and not any(_waits_for_volume(pod, facts) for pod in here):
            # Volumes, image and sandbox look the same until an event names one.
            count = "" if single else f"{len(here)} of {plural(total, 'pod')}: "
            return Link(stage, UNKNOWN, _sentence(f"{count}{_why(here[0], facts, stage)}"))
        why = _why(here[0], facts, stage)
        text = why if single else f"{len(here)} of {plural(total, 'pod')}: {here[0].name}: {why}"
        return Link(stage, BLOCKING, _sentence(text), advice.pod(stage, here[0].reason))
    if before:
        return Link(stage, LATER, "")
    return Link(stage, DONE, _done(stage, facts))


def _done(stage: WaitStage, facts: Facts) -> str:
    if stage is WaitStage.NODE_ROOM and facts.desired is None and facts.pods[0].host:
        return f"It is on node {facts.pods[0].host}."
    if stage is WaitStage.READY:
        count = len(facts.pods)
        return "It is ready." if facts.desired is None else f"{plural(count, 'pod')} ready."
    return ""


def _why(pod: Pod, facts: Facts, stage: WaitStage) -> str:
    if stage is WaitStage.VOLUME:
        if message := _claims([pod], facts.claims):
            return message
        if note := _latest(pod, facts.notices, _VOLUME_EVENTS):
            return note.message
    if stage is WaitStage.IMAGE_PULL and not pod.stage:
        note = _latest(pod, facts.notices, _PULL_EVENTS)
        return note.message if note is not None else pod.reason
    return pod.reason or "no reason is reported yet"


def _waits_for_volume(pod: Pod, facts: Facts) -> bool:
    return (
        pod.stage != ""
        or _claims([pod], facts.claims) != ""
        or _latest(pod, facts.notices, _VOLUME_EVENTS) is not None
    )


def _claims(pods: Iterable[Pod], claims: Iterable[ClaimState]) -> str:
    """The claims that are not bound."""
    names = {claim for pod in pods for claim in pod.claims}
    unbound = [each for each in claims if each.name in names and each.phase != "Bound"]
    return "; ".join(
        f"claim {each.name} is {each.phase or 'not readable'}"
        + (f": {each.message}" if each.message else "")
        for each in unbound
    )


def _stage(pod: Pod, notices: Collection[Notice]) -> str:
    """The pod's stage; its events distinguish a volume from an image."""
    if pod.ready:
        return WaitStage.READY
    if pod.stage == WaitStage.QUEUE:
        return WaitStage.NODE_ROOM
    if pod.stage:
        return pod.stage
    volume = _latest(pod, notices, _VOLUME_EVENTS)
    pull = _latest(pod, notices, _PULL_EVENTS)
    if pull is not None and (volume is None or volume.at_s < pull.at_s):
        return WaitStage.INIT if pull.reason == "Pulled" else WaitStage.IMAGE_PULL
    return WaitStage.VOLUME


def _number(stage: str) -> int:
    return POD_STAGES.index(WaitStage(stage))


def _latest(pod: Pod, notices: Iterable[Notice], reasons: Collection[str]) -> Notice | None:
    found = [note for note in notices if note.name == pod.name and note.reason in reasons]
    return max(found, key=lambda note: note.at_s, default=None)


# -- text


def _missing(facts: Facts) -> str:
    return "; ".join(facts.missing)


def _reported(entry: QueueEntry) -> str:
    return f"{entry.manager.capitalize()}: {_sentence(entry.message)}"


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
