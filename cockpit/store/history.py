"""Past pods, deleted nodes, and gaps in which a source reported no data."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from cockpit.model.cluster import KubernetesNode, Node, NodeType, Pod, PodPhase
from cockpit.model.event import KubernetesNodesListed, NodesListed, PodsListed, SourceHealth

REMOVED_KEPT = 500
STATES_KEPT = 24
"""Of each pod, the newest."""
DEATHS_KEPT = 500
NODES_KEPT = 10_000
GAPS_KEPT = 50
"""Of each source."""
SILENT_AFTER_S = 10.0
"""A source that reports OK after a longer pause than this has a gap."""


class PodState(Struct, frozen=True):
    """A pod from `at_s` on."""

    at_s: float
    phase: PodPhase
    ready: bool
    restarts: int = 0

    @property
    def is_well(self) -> bool:
        return self.ready and self.phase is PodPhase.RUNNING


class PodPast(Struct, frozen=True):
    """The lifetime of one pod, as far as it was observed."""

    name: str
    group: str
    node_type: NodeType
    seen_s: float
    """When it was first listed; of those in the first list, when they were made."""
    ip: str = ""
    host: str = ""
    gpus: float = 0.0
    """As of `Pod`."""
    states: tuple[PodState, ...] = ()
    removed_s: float | None = None

    def left_s(self, since_s: float) -> float | None:
        """When it was first not well, from `since_s` on, having been well before."""
        return next((s.at_s for s in self.states if s.at_s >= since_s and not s.is_well), None)

    def ready_s(self, since_s: float) -> float | None:
        """When it was first well, from `since_s` on; a state that began before counts as then."""
        found = next((s for s in self.states if s.at_s >= since_s and s.is_well), None)
        return None if found is None else found.at_s


class NodeKind(Struct, frozen=True):
    """What a K8s node is and offered when it was last listed."""

    type: str
    gpus: float


class NodeDeath(Struct, frozen=True):
    """A Ray node that was alive in one list and dead, or not there, in the next."""

    id: str
    ip: str
    at_s: float


class Withdrawal(Struct, frozen=True):
    """A K8s node offers fewer GPUs than it has, from `at_s` on."""

    node: str
    at_s: float
    what: str
    """`1 of 8 GPUs withdrawn`."""
    is_partial: bool
    """False when all are: then the device plugin itself may have ended."""
    is_seen: bool
    """False when it was so in the first list: the time is unknown."""


class Gap(Struct, frozen=True):
    """A time without data from a source. `ended_s` is None while the gap is open."""

    source: str
    began_s: float
    ended_s: float | None
    why: str


class Past(Struct):
    """Bounded: the oldest entries are deleted."""

    pods: dict[str, PodPast] = field(default_factory=dict)
    """By name: running pods, and the newest of the deleted ones."""
    deaths: deque[NodeDeath] = field(default_factory=lambda: deque(maxlen=DEATHS_KEPT))
    withdrawals: deque[Withdrawal] = field(default_factory=lambda: deque(maxlen=DEATHS_KEPT))
    gaps: dict[str, tuple[Gap, ...]] = field(default_factory=dict)
    """By source, the newest last."""
    node_kinds: dict[str, NodeKind] = field(default_factory=dict)
    """By name: the K8s nodes with a known type, also the newest of those that were deleted."""
    _last_update_s: dict[str, float] = field(default_factory=dict)
    """By source: the time until which no data is expected."""
    _removed: dict[str, None] = field(default_factory=dict)

    def take_pods(self, event: PodsListed) -> None:
        is_first = not self.pods
        for pod in event.pods:
            self._pod(pod, event.at_s, is_first=is_first)
        if not event.more:
            there = {pod.name for pod in event.pods}
            for name in [name for name in self.pods if name not in there]:
                self._note_removed(name, event.at_s)
        while len(self._removed) > REMOVED_KEPT:
            name = next(iter(self._removed))
            del self._removed[name], self.pods[name]

    def take_nodes(self, before: Mapping[str, Node], event: NodesListed) -> None:
        alive = {node.id for node in event.nodes if node.alive}
        for node in before.values():
            if node.alive and node.id not in alive:
                self.deaths.append(NodeDeath(node.id, node.ip, event.at_s))

    def take_kubernetes_nodes(
        self, before: Mapping[str, KubernetesNode], event: KubernetesNodesListed
    ) -> None:
        for node in event.nodes:
            if node.type:
                self._note_kind(node)
            earlier = before.get(node.name)
            if node.gpus_withdrawn > (earlier.gpus_withdrawn if earlier is not None else 0.0):
                self.withdrawals.append(
                    Withdrawal(
                        node.name, event.at_s, node.withdrawn, node.gpus > 0, earlier is not None
                    )
                )

    def take_health(self, event: SourceHealth) -> None:
        """Logs and some backend events may be rare: only a failure is a gap."""
        source, last_update_s = event.source, self._last_update_s.get(event.source)
        gaps = self.gaps.get(source, ())
        is_open = bool(gaps) and gaps[-1].ended_s is None
        if event.ok and not event.absent:
            if is_open:
                gaps = (*gaps[:-1], replace(gaps[-1], ended_s=event.at_s))
            elif (
                last_update_s is not None
                and ":" not in source
                and _is_late(event.at_s, last_update_s)
            ):
                gaps = (*gaps, Gap(source, last_update_s, event.at_s, "no data"))
            self._last_update_s[source] = max(event.at_s, event.retry_at_s or -math.inf)
        elif last_update_s is not None and not is_open:
            why = event.error or ("it was not there" if event.absent else "it failed")
            gaps = (*gaps, Gap(source, min(last_update_s, event.at_s), None, why))
        if gaps:
            self.gaps[source] = gaps[-GAPS_KEPT:]

    def lives(self, names: Iterable[str]) -> list[PodPast]:
        return [self.pods[name] for name in names if name in self.pods]

    def _pod(self, pod: Pod, at_s: float, *, is_first: bool) -> None:
        past = self.pods.get(pod.name)
        if past is None:
            seen_s = min(at_s, pod.created_s or at_s) if is_first else at_s
            past = PodPast(pod.name, pod.group, pod.node_type, seen_s, pod.ip, pod.host, pod.gpus)
        elif (pod.ip and pod.ip != past.ip) or (pod.host and pod.host != past.host):
            past = replace(
                past, ip=pod.ip or past.ip, host=pod.host or past.host, gpus=pod.gpus or past.gpus
            )
        last = past.states[-1] if past.states else None
        if last is None or (last.phase, last.ready, last.restarts) != (
            pod.phase,
            pod.ready,
            pod.restarts,
        ):
            state = PodState(at_s, pod.phase, pod.ready, pod.restarts)
            past = replace(past, states=(*past.states, state)[-STATES_KEPT:])
        self.pods[pod.name] = past
        if pod.phase is PodPhase.FAILED:
            self._note_removed(pod.name, pod.ended_s or at_s)

    def _note_kind(self, node: KubernetesNode) -> None:
        self.node_kinds.pop(node.name, None)  # the newest last
        self.node_kinds[node.name] = NodeKind(node.type, node.gpus)
        while len(self.node_kinds) > NODES_KEPT:
            del self.node_kinds[next(iter(self.node_kinds))]

    def _note_removed(self, name: str, at_s: float) -> None:
        if (pod := self.pods[name]).removed_s is None:
            self.pods[name] = replace(pod, removed_s=at_s)
            self._removed[name] = None


def _is_late(at_s: float, last_update_s: float) -> bool:
    return at_s - last_update_s > SILENT_AFTER_S
