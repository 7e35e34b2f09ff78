"""Refuse operations that only Kubernetes supports, on other clusters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NoReturn

from cockpit.backends import file_lease
from cockpit.backends.protocol import VERBS, Change, ExecResult, RayJobSpec, Scaled, Terminal
from cockpit.model.cluster import Capability, ClusterRef, DashboardRoute, QuotaRoom
from cockpit.model.error import NotAllowedError, UnreachableError, UsageError
from cockpit.model.event import Event
from cockpit.model.scale import ScaleRequest
from cockpit.model.text import as_sentence

ONLY_KUBERNETES = (
    "rayjob",
    "suspend",
    "cordon",
    "manifest",
    "describe",
    "evict",
    "isolate",
)


class WithoutKubernetes:
    """A base for such backends. `WHY` describes the kind of cluster."""

    WHY = "this cluster is not on Kubernetes"

    @property
    def ref(self) -> ClusterRef:
        raise NotImplementedError

    def refused(self) -> dict[str, Capability]:
        return dict.fromkeys(ONLY_KUBERNETES, Capability(False, self.WHY))

    async def attach(
        self, pod: str, argv: Sequence[str], *, tty: bool, rows: int = 24, columns: int = 80
    ) -> Terminal:
        self._refuse("An interactive shell in a pod is not available.")

    async def manifest(self, kind: str, name: str) -> str:
        self._refuse("There is no Kubernetes object to show.")

    async def describe(self, kind: str, name: str) -> str:
        self._refuse("There is no Kubernetes object to describe.")

    async def suspend(self, suspended: bool, *, uid: str = "") -> None:
        self._refuse("Only a RayCluster can be suspended.")

    async def cordon(self, node: str, cordoned: bool, *, uid: str = "") -> None:
        self._refuse("Only a Kubernetes node can be cordoned.")

    async def evict_pod(self, pod: str, *, uid: str, grace_s: float) -> None:
        self._refuse("Only a Kubernetes pod can be evicted.")

    async def isolate(self, pod: str, name: str, *, uid: str) -> None:
        self._refuse("There are no network policies here.")

    async def rejoin(self, name: str) -> None:
        self._refuse("There are no network policies here.")

    async def hold(self, holder: str, ttl_s: float, *, expired: str = "") -> None:
        await asyncio.to_thread(file_lease.hold, str(self.ref), holder, ttl_s, expired)

    async def release(self, holder: str) -> None:
        await asyncio.to_thread(file_lease.release, str(self.ref), holder)

    async def holder(self) -> str:
        return await asyncio.to_thread(file_lease.holder, str(self.ref))

    async def quota_room(self) -> tuple[QuotaRoom, ...]:
        return ()

    async def create_rayjob(self, spec: RayJobSpec) -> str:
        self._refuse("There are no RayJobs here.")

    async def stop_rayjob(self, name: str, *, uid: str) -> None:
        self._refuse("There are no RayJobs here.")

    async def delete_rayjob(self, name: str, *, uid: str) -> None:
        self._refuse("There are no RayJobs here.")

    async def announce(self, change: Change) -> None:
        """There is no object to leave a trace on."""

    async def aclose(self) -> None:
        """No resources are held."""

    def _refuse(self, what: str) -> NoReturn:
        raise UsageError(what, as_sentence(self.WHY))


class WithoutOperator(WithoutKubernetes):
    """A base for what is read-only: it has no operator to create or remove pods."""

    async def scale(self, request: ScaleRequest) -> Scaled:
        self._refuse("Nothing can be scaled from here.")

    async def delete_pod(self, pod: str, *, uid: str, grace_s: float) -> None:
        self._refuse("Nothing can be killed from here.")

    async def exec(self, pod: str, argv: Sequence[str], *, uid: str = "") -> ExecResult:
        self._refuse("Nothing can be executed from here.")

    def logs(
        self, pod: str, *, follow: bool, lines: int = 1000, previous: bool = False
    ) -> AsyncIterator[str]:
        self._refuse("A pod's own output is not available from here.")


WHY = "this is a recording"


class RecordedBackend(WithoutOperator):
    """`ref` is the recorded cluster. Its events come from the player, not from here."""

    WHY = WHY

    def __init__(self, ref: ClusterRef) -> None:
        self._ref = ref

    @property
    def ref(self) -> ClusterRef:
        return self._ref

    async def watch(self) -> AsyncIterator[Event]:
        await asyncio.Event().wait()
        return
        yield  # an iterator that never yields

    async def capabilities(self) -> Mapping[str, Capability]:
        # Not of every backend's, since a drill takes several: here it takes none of them.
        return dict.fromkeys((*VERBS, "drill"), Capability(False, as_sentence(WHY)))

    async def dashboard(self) -> DashboardRoute:
        raise UnreachableError(
            "There is no dashboard to ask.",
            "This is a recording: what was not recorded cannot be asked for any more.",
        )

    def _refuse(self, what: str) -> NoReturn:
        raise NotAllowedError(what, as_sentence(WHY))
