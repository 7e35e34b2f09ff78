"""The states of the hosts, and what Ray's dashboard lists, as events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress

from msgspec.structs import replace

from cockpit.backends.ssh.description import HEAD_GROUP
from cockpit.backends.ssh.fleet import Fleet
from cockpit.backends.ssh.state import ClusterRecord, HostState
from cockpit.format import plural
from cockpit.model.clock import server_time
from cockpit.model.cluster import (
    CONNECTING,
    ClusterHealth,
    ClusterRef,
    KubernetesNode,
    Pod,
    WorkerGroup,
)
from cockpit.model.error import CockpitError
from cockpit.model.event import (
    ClusterSeen,
    Event,
    GroupsListed,
    KubernetesNodesListed,
    PodsListed,
    source_health,
)
from cockpit.model.text import one_line
from cockpit.sources.polling.pause import pause
from cockpit.sources.ray.dashboard import Dashboard

SOURCE = "backend"
HEALTH_PERIOD_S = 2.0
FIRST_AFTER_S = 0.25
"""Then the hosts are listed, also those that have not answered, and the pods as incomplete."""
STARTING_PERIOD_S = 0.5
REST_PERIOD_S = 5.0
NO_OPERATOR = "operator not running: nothing is replaced or scaled; start it with: cockpit up"
NO_CLUSTER = "no cluster runs on these hosts; start it with: cockpit up"


class Readiness:
    """Which addresses Ray lists as living nodes, asked while there is a head."""

    def __init__(self, fleet: Fleet, dashboard: Dashboard) -> None:
        self._fleet, self._dashboard = fleet, dashboard
        self.alive: frozenset[str] = frozenset()
        self.ray_version = ""
        self.asked_for = ""
        """The UID of the head that was asked last."""

    async def run(self) -> None:
        while True:
            state = self._fleet.states.get(self._fleet.hosts.head.name)
            head = state.living if state else None
            uid = head.pod.uid if head is not None and head.started else ""
            alive: frozenset[str] = frozenset()
            if uid:
                try:
                    alive = await self._dashboard.living_addresses()
                    self.ray_version = self.ray_version or (await self._dashboard.version()).ray
                except CockpitError:
                    alive = frozenset()  # not yet, or no more: none is known to live
            if (alive, uid) != (self.alive, self.asked_for):
                self.alive, self.asked_for = alive, uid
                self._fleet.changed.set()
            await pause(REST_PERIOD_S if self._rests() else STARTING_PERIOD_S)

    def _rests(self) -> bool:
        living = [state.living for state in self._fleet.states.values()]
        return self._fleet.is_complete and all(
            pod is None or pod.pod.ip in self.alive for pod in living
        )


async def watch_hosts(
    ref: ClusterRef, fleet: Fleet, dashboard: Dashboard
) -> AsyncGenerator[Event, None]:
    """Yield the current state, then each change, until closed."""
    fleet.follow()
    readiness = Readiness(fleet, dashboard)
    polling = asyncio.create_task(readiness.run())
    seen: dict[type[Event], object] = {}
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_AFTER_S):
                while not _is_complete(fleet, readiness):
                    await _changed(fleet, None)
        while True:
            now = server_time()
            for event in _events(ref, fleet, readiness, now):
                key = replace(event, at_s=0.0)
                if seen.get(type(event)) != key:
                    seen[type(event)] = key
                    yield event
            error = fleet.errors.get(fleet.hosts.head.name)
            yield source_health(now, SOURCE, error) if error else source_health(now, SOURCE)
            await _changed(fleet, HEALTH_PERIOD_S)
    finally:
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)


async def _changed(fleet: Fleet, within_s: float | None) -> None:
    try:
        async with asyncio.timeout(within_s):
            await fleet.changed.wait()
    except TimeoutError:
        return
    fleet.changed.clear()


def _is_complete(fleet: Fleet, readiness: Readiness) -> bool:
    """Whether all hosts have answered or failed to, and Ray has listed its nodes: a cluster that is
    ready must not first be reported as starting.
    """
    if not fleet.is_complete:
        return False
    state = fleet.states.get(fleet.hosts.head.name)
    head = state.living if state else None
    return head is None or not head.started or readiness.asked_for == head.pod.uid


def _events(ref: ClusterRef, fleet: Fleet, readiness: Readiness, now: float) -> Iterator[Event]:
    pods, complete = _pods(fleet, readiness), _is_complete(fleet, readiness)
    head = fleet.states.get(fleet.hosts.head.name, HostState())
    groups = _groups(fleet, head.cluster, pods)
    health, message = _health(fleet, head, groups, pods)
    if not complete:
        known = len(fleet.states.keys() | fleet.errors.keys())
        health, message = ClusterHealth.UNKNOWN, "connecting to Ray's dashboard"
        if not fleet.is_complete:
            message = f"connecting: {known} of {plural(len(fleet.hosts.hosts), 'host')} answered"
    yield ClusterSeen(
        at_s=now,
        source=SOURCE,
        ref=ref,
        health=health,
        message=message,
        ray_version=readiness.ray_version,
        uid=head.cluster.uid if head.cluster else "",
    )
    yield GroupsListed(at_s=now, source=SOURCE, groups=groups)
    yield PodsListed(at_s=now, source=SOURCE, pods=pods, more=not complete)
    yield KubernetesNodesListed(at_s=now, source=SOURCE, nodes=_nodes(fleet))


def _pods(fleet: Fleet, readiness: Readiness) -> tuple[Pod, ...]:
    pods = []
    for host in fleet.hosts.hosts:
        for state in fleet.states.get(host.name, HostState()).pods:
            if not state.shown:
                continue
            lives = state.head_uid == readiness.asked_for and host.address in readiness.alive
            pod = state.seen(lives and state.started and not state.over)
            if host.name in fleet.errors and not state.over:
                why = one_line(fleet.errors[host.name].what)
                pod = replace(pod, reason=f"its host is not reached: {why}")
            pods.append(pod)
    return tuple(pods)


def _groups(
    fleet: Fleet, cluster: ClusterRecord | None, pods: tuple[Pod, ...]
) -> tuple[WorkerGroup, ...]:
    return tuple(
        WorkerGroup(
            name=group.name,
            desired=group.desired,
            ready=sum(pod.ready for pod in pods if pod.group == group.name),
            min=group.min,
            max=group.max,
            resources=group.resources,
        )
        for group in (cluster.groups if cluster else ())
    )


def _health(
    fleet: Fleet, head: HostState, groups: tuple[WorkerGroup, ...], pods: tuple[Pod, ...]
) -> tuple[ClusterHealth, str]:
    if error := fleet.errors.get(fleet.hosts.head.name):
        return ClusterHealth.UNKNOWN, one_line(error.what)
    if head.cluster is None:
        return ClusterHealth.DOWN, NO_CLUSTER
    heads = [pod for pod in pods if pod.group == HEAD_GROUP]
    if not any(pod.ready for pod in heads):
        state = ClusterHealth.STARTING if head.operator else ClusterHealth.DOWN
        return state, NO_OPERATOR if not head.operator else _waiting(pods) or "its head starts"
    if not head.operator:
        return ClusterHealth.DEGRADED, NO_OPERATOR
    if fleet.errors:
        name, error = next(iter(fleet.errors.items()))
        more = f" and {len(fleet.errors) - 1} more" if len(fleet.errors) > 1 else ""
        return ClusterHealth.DEGRADED, f"host {name}{more}: {one_line(error.what)}"
    if all(group.ready >= group.desired for group in groups):
        return ClusterHealth.READY, ""
    return ClusterHealth.DEGRADED, _waiting(pods) or "fewer pods than desired"


def _waiting(pods: tuple[Pod, ...]) -> str:
    waiting = [f"{pod.name} ({pod.reason})" for pod in pods if not pod.ready and not pod.ended_s]
    more = f" and {len(waiting) - 3} more" if len(waiting) > 3 else ""
    return f"not ready: {', '.join(waiting[:3])}{more}" if waiting else ""


def _nodes(fleet: Fleet) -> tuple[KubernetesNode, ...]:
    nodes = []
    for host in fleet.hosts.hosts:
        facts = fleet.states.get(host.name, HostState()).host
        error, answered = fleet.errors.get(host.name), host.name in fleet.states
        nodes.append(
            KubernetesNode(
                name=host.name,
                ready=answered and error is None,
                reason=one_line(error.what) if error else "" if answered else CONNECTING,
                ip=host.address,
                version=one_line(facts.kernel, 40),
                type=host.type,
                cpus=facts.cpus,
                memory_bytes=facts.memory_bytes,
                gpus=float(len(facts.gpus)),
                problems=tuple(map(one_line, facts.problems)),
            )
        )
    return tuple(nodes)
