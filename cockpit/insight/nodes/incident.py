"""Incidents by node, from the events of one recorded run.

A node is the K8s node of a pod, else a host with Ray. Effects of a drill are no incidents: events
between its injection and a minute after its end do not count.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct, field

from cockpit.insight.hang.types import Kind as HangKind
from cockpit.model.cluster import Pod, PodPhase
from cockpit.model.event import (
    AlertRaised,
    AttemptEnded,
    AttemptStarted,
    ClusterSeen,
    DrillEnded,
    DrillInjected,
    Event,
    NodesListed,
    PodsListed,
)
from cockpit.model.text import one_line

AFTER_DRILL_S = 60.0
DRILL_AT_MOST_S = 900.0
"""A drill whose end was not recorded counts for so long."""
SAME_S = 60.0
"""Failures of one node within this time are one incident: a dying node also ends its ranks."""


ENDED = ("expected termination", "terminated due to preemption", "terminated due to idle")
"""The beginnings of Ray's messages for nodes that did not fail: drained, reclaimed, or scaled down
(`compose_state_message` in `ray/dashboard/utils.py`, Ray 2.60)."""


class Kind(StrEnum):
    NODE_DIED = "Ray node died"
    GPU_ERROR = "GPU error"
    RANK_DIED = "rank died"
    POD_FAILED = "pod failed"
    HANG = "hung rank"
    SLOW = "slow rank"
    THROTTLED = "GPU throttled"


FAILURES = (Kind.NODE_DIED, Kind.RANK_DIED, Kind.POD_FAILED, Kind.HANG)
"""Kinds that may happen on any node by chance, so that their number is compared with the others."""
_OF_ALERT = {
    "gpu-xid": Kind.GPU_ERROR,
    "gpu-ecc": Kind.GPU_ERROR,
    "gpu-throttled": Kind.THROTTLED,
    "straggler": Kind.SLOW,
    "slowed-rank": Kind.SLOW,
    "hang": Kind.HANG,
}
_HANGS_OF_NODES = (HangKind.FROZEN, HangKind.SWAPPED, HangKind.STORAGE, HangKind.GPU)
"""Other kinds of hang are caused by the code, on any node."""
_RANK = re.compile(r"[Rr]anks? (\d+)")
_DEATH = re.compile(r"ranks? (\d+(?:, \d+)*): (?:its process died|its node died|killed, its node)")
"""The message of `training.telemetry.ray_train.end_reason` for the death of a rank."""


class Incident(Struct, frozen=True):
    node: str
    kind: Kind
    at_s: float
    what: str
    """One line."""
    run_id: str = ""


class RunIncidents(Struct, frozen=True):
    """Of one recorded run."""

    cluster: tuple[str, str, str] = ("", "", "")
    """Backend, namespace and name; empty when the recording does not have them."""
    incidents: tuple[Incident, ...] = ()
    node_hours: dict[str, float] = field(default_factory=dict)
    """How long each node had ranks of the run."""


EVENTS = (
    *(AlertRaised, AttemptEnded, AttemptStarted, ClusterSeen, DrillEnded, DrillInjected),
    *(NodesListed, PodsListed),
)
"""Kinds of events that `read` needs."""


def read(events: Iterable[Event]) -> RunIncidents:
    """Return the incidents of the events, which are in order of time."""
    reader = _Reader()
    for event in events:
        reader.take(event)
    return reader.result()


class _Reader(Struct):
    cluster: tuple[str, str, str] = ("", "", "")
    found: list[Incident] = field(default_factory=list)
    drills: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By the id of the record: from when to when the effects of its faults do not count."""
    hosts: dict[str, str] = field(default_factory=dict)
    """The node of each pod address."""
    pods: dict[str, Pod] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)
    """The ids of the Ray nodes that were alive in the last list."""
    ranks: dict[int, str] = field(default_factory=dict)
    """The address of each rank of the attempt."""
    began_s: float | None = None
    hours: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    alerts: set[str] = field(default_factory=set)
    newest_s: float = 0.0

    def take(self, event: Event) -> None:
        self.newest_s = max(self.newest_s, event.at_s)
        match event:
            case ClusterSeen():
                ref = event.ref
                self.cluster = ref.backend, ref.namespace, ref.name
            case PodsListed():
                for pod in event.pods:
                    self._pod(pod, event.at_s)
            case NodesListed():
                self._nodes(event)
            case AttemptStarted():
                self._attempt_over(event.at_s)
                self.ranks = {of.rank: of.node_ip for of in event.placements}
                self.began_s = event.at_s
                self.alerts.clear()  # its ranks may be on other nodes
            case AttemptEnded():
                if died := _DEATH.search(event.reason):
                    ranks = [int(rank) for rank in died[1].split(", ")]
                    for node in {self._node(self.ranks.get(rank, "")) for rank in ranks}:
                        self._add(node, Kind.RANK_DIED, event.at_s, event.reason, event.run_id)
                self._attempt_over(event.at_s)
            case AlertRaised():
                self._alert(event)
            case DrillInjected():
                drill = event.drill
                record_id = drill.id.partition(".")[0]
                begin_s, _ = self.drills.get(record_id, (drill.injected_s, 0.0))
                self.drills[record_id] = begin_s, drill.injected_s + DRILL_AT_MOST_S
            case DrillEnded():
                record = event.record
                self.drills[record.id] = (
                    record.began_s,
                    (record.ended_s or event.at_s) + AFTER_DRILL_S,
                )
            case _:
                pass

    def result(self) -> RunIncidents:
        self._attempt_over(self.newest_s)
        kept: list[Incident] = []
        for one in sorted(self.found, key=lambda each: (each.at_s, list(Kind).index(each.kind))):
            if any(begin_s <= one.at_s <= end_s for begin_s, end_s in self.drills.values()):
                continue
            if one.kind in FAILURES and any(
                other.node == one.node
                and other.kind in FAILURES
                and one.at_s - other.at_s <= SAME_S
                for other in kept
            ):
                continue
            kept.append(one)
        return RunIncidents(self.cluster, tuple(kept), dict(self.hours))

    def _node(self, ip: str) -> str:
        return self.hosts.get(ip) or ip

    def _add(self, node: str, kind: Kind, at_s: float, what: str, run_id: str = "") -> None:
        if node:
            self.found.append(Incident(node, kind, at_s, one_line(what), run_id))

    def _pod(self, pod: Pod, at_s: float) -> None:
        before = self.pods.get(pod.name)
        self.pods[pod.name] = pod
        if pod.ip and pod.host:
            self.hosts[pod.ip] = pod.host
        if before is None or (before.uid and before.uid != pod.uid):
            return
        failed = pod.phase is PodPhase.FAILED and before.phase is not PodPhase.FAILED
        if failed or pod.restarts > before.restarts:
            what = (
                f"{pod.name}: {pod.reason or ('failed' if failed else 'its container restarted')}"
            )
            self._add(pod.host, Kind.POD_FAILED, pod.ended_s or at_s, what)

    def _nodes(self, event: NodesListed) -> None:
        """A node that disappears from the list is no incident: a new head lists no old nodes."""
        for node in event.nodes:
            died = not node.alive and not node.state_message.lower().startswith(ENDED)
            if died and node.id in self.alive:
                what = node.state_message or f"the Ray node on {node.ip} died"
                self._add(self._node(node.ip), Kind.NODE_DIED, event.at_s, what)
        self.alive = {node.id for node in event.nodes if node.alive}

    def _attempt_over(self, at_s: float) -> None:
        if self.began_s is not None:
            for node in {self._node(ip) for ip in self.ranks.values() if ip}:
                self.hours[node] += max(0.0, at_s - self.began_s) / 3600
        self.began_s = None

    def _alert(self, event: AlertRaised) -> None:
        alert, finding = event.alert, event.alert.finding
        kind = _OF_ALERT.get(finding.kind)
        is_earlier = self.began_s is not None and alert.raised_s < self.began_s
        if kind is None or alert.id in self.alerts or is_earlier:
            return
        self.alerts.add(alert.id)
        subject = finding.subject
        if kind is Kind.HANG:
            if not finding.why.startswith(_HANGS_OF_NODES):
                return
            subject = finding.what  # its sentence names the rank that blocks the others first
        if (named := _RANK.search(subject)) is None:
            return
        self._add(
            self._node(self.ranks.get(int(named[1]), "")),
            kind,
            alert.raised_s,
            finding.what,
            finding.run_id,
        )
