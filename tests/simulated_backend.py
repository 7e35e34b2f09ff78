"""A backend without a cluster: it emits given events and records its calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from cockpit.backends.protocol import (
    VERBS,
    Change,
    ExecResult,
    RayJobSpec,
    Scaled,
    Terminal,
)
from cockpit.model.cluster import Capability, ClusterRef, DashboardRoute, QuotaRoom
from cockpit.model.error import ChangedError, ReplacedError, UsageError
from cockpit.model.event import Event
from cockpit.model.new_cluster import NewCluster, PodsOf
from cockpit.model.scale import ScaleRequest

NEW = NewCluster((PodsOf("workers", 8, 8.0, 8.0, 0.0, 8.0, 8.0, "train:1"),), is_accepted=True)
"""With room for any job of the tests."""


@dataclass(slots=True)
class ScriptedBackend:
    """Emits `events` once. `asked` contains each call that makes a change."""

    events: Sequence[Event] = ()
    ref: ClusterRef = field(default_factory=lambda: ClusterRef("local", "scripted"))
    route: DashboardRoute = field(default_factory=lambda: DashboardRoute("http://127.0.0.1:9"))
    denied: Mapping[str, str] = field(default_factory=dict)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    held_by: str = ""
    replicas: int = 2
    """The current state of every group."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """By the name of a pod, its current UID."""
    quotas: Sequence[QuotaRoom] = ()
    new: NewCluster = NEW
    """What there is for the cluster of a RayJob."""
    uids: list[str] = field(default_factory=list)
    """The UIDs in the requests, in order."""

    async def watch(self) -> AsyncIterator[Event]:
        for event in self.events:
            yield event
        await asyncio.Event().wait()

    async def scale(self, request: ScaleRequest) -> Scaled:
        group, replicas, expected = request.group, request.replicas, request.expected
        if expected is not None and expected != self.replicas:
            raise ChangedError(group, self.replicas, expected)
        for pod, of in zip(request.remove, request.remove_uids, strict=False):
            self._require(pod, of)
        self.asked.append(("scale", group, str(replicas), *request.remove))
        self.uids.append(request.uid)
        return Scaled(group, self.replicas, self.replicas if replicas is None else replicas)

    def _require(self, pod: str, uid: str) -> None:
        if uid and self.replaced.get(pod, uid) != uid:
            raise ReplacedError("Pod", pod)

    async def delete_pod(self, pod: str, *, uid: str, grace_s: float) -> None:
        self._require(pod, uid)
        self.asked.append(("delete_pod", pod, f"{grace_s:g}"))
        self.uids.append(uid)

    async def exec(self, pod: str, argv: Sequence[str], *, uid: str = "") -> ExecResult:
        self._require(pod, uid)
        self.asked.append(("exec", pod, *argv))
        return ExecResult(0, "", "")

    async def attach(
        self, pod: str, argv: Sequence[str], *, tty: bool, rows: int = 24, columns: int = 80
    ) -> Terminal:
        self.asked.append(("attach", pod, *argv))
        raise UsageError("A scripted pod has no shell.")

    async def logs(
        self, pod: str, *, follow: bool, lines: int = 1000, previous: bool = False
    ) -> AsyncIterator[str]:
        for line in (f"{pod} says hello",) if lines else ():
            yield line

    async def manifest(self, kind: str, name: str) -> str:
        return f"kind: {kind}\nmetadata:\n  name: {name}\n"

    async def describe(self, kind: str, name: str) -> str:
        return f"{kind} {name}\n"

    async def suspend(self, suspended: bool, *, uid: str = "") -> None:
        self.asked.append(("suspend", str(suspended)))
        self.uids.append(uid)

    async def cordon(self, node: str, cordoned: bool, *, uid: str = "") -> None:
        self.asked.append(("cordon", node, str(cordoned)))

    async def evict_pod(self, pod: str, *, uid: str, grace_s: float) -> None:
        self.asked.append(("evict_pod", pod, f"{grace_s:g}"))
        self.uids.append(uid)

    async def isolate(self, pod: str, name: str, *, uid: str) -> None:
        self._require(pod, uid)
        self.asked.append(("isolate", pod, name))

    async def rejoin(self, name: str) -> None:
        self.asked.append(("rejoin", name))

    async def hold(self, holder: str, ttl_s: float, *, expired: str = "") -> None:
        self.asked.append(("hold", holder))

    async def release(self, holder: str) -> None:
        self.asked.append(("release", holder))

    async def holder(self) -> str:
        return self.held_by

    async def quota_room(self) -> tuple[QuotaRoom, ...]:
        return tuple(self.quotas)

    async def new_cluster(self, spec: RayJobSpec, *, may_try: bool) -> NewCluster:
        return self.new

    async def create_rayjob(self, spec: RayJobSpec) -> str:
        self.asked.append(("create_rayjob", spec.name, spec.entrypoint))
        return spec.name

    async def stop_rayjob(self, name: str, *, uid: str) -> None:
        self.asked.append(("stop_rayjob", name))
        self.uids.append(uid)

    async def delete_rayjob(self, name: str, *, uid: str) -> None:
        self.asked.append(("delete_rayjob", name))
        self.uids.append(uid)

    async def announce(self, change: Change) -> None:
        self.asked.append(("announce", change.action, change.kind, change.name))

    async def aclose(self) -> None:
        self.asked.append(("aclose",))

    async def dashboard(self) -> DashboardRoute:
        return self.route

    async def capabilities(self) -> Mapping[str, Capability]:
        return {
            verb: Capability(verb not in self.denied, self.denied.get(verb, "")) for verb in VERBS
        }
