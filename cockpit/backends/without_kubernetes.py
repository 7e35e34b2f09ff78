"""Refuse operations that only Kubernetes supports, on other clusters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, NoReturn

from cockpit.backends import file_lease
from cockpit.backends.protocol import VERBS, Change
from cockpit.model.cluster import Capability, ClusterRef, DashboardRoute, QuotaRoom
from cockpit.model.error import NotAllowedError, UnreachableError, UsageError
from cockpit.model.event import Event
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


def _refused(what: str) -> Callable[..., Coroutine[Any, Any, NoReturn]]:
    """A method that refuses every call with this message."""

    async def method(self: WithoutKubernetes, *args: object, **flags: object) -> NoReturn:
        self._refuse(what)

    return method


class WithoutKubernetes:
    """A base for such backends. `WHY` describes the kind of cluster."""

    WHY = "this cluster is not on Kubernetes"

    @property
    def ref(self) -> ClusterRef:
        raise NotImplementedError

    def refused(self) -> dict[str, Capability]:
        return dict.fromkeys(ONLY_KUBERNETES, Capability(False, self.WHY))

    manifest = _refused("There is no Kubernetes object to show.")
    describe = _refused("There is no Kubernetes object to describe.")
    suspend = _refused("Only a RayCluster can be suspended.")
    cordon = _refused("Only a Kubernetes node can be cordoned.")
    evict_pod = _refused("Only a Kubernetes pod can be evicted.")
    isolate = rejoin = _refused("There are no network policies here.")
    new_cluster = _refused("There are no RayJobs here.")
    create_rayjob = stop_rayjob = delete_rayjob = new_cluster

    async def hold(self, holder: str, ttl_s: float, *, expired: str = "") -> None:
        await asyncio.to_thread(file_lease.hold, str(self.ref), holder, ttl_s, expired)

    async def release(self, holder: str) -> None:
        await asyncio.to_thread(file_lease.release, str(self.ref), holder)

    async def holder(self) -> str:
        return await asyncio.to_thread(file_lease.holder, str(self.ref))

    async def quota_room(self) -> tuple[QuotaRoom, ...]:
        return ()

    async def announce(self, change: Change) -> None:
        """There is no object to leave a trace on."""

    async def aclose(self) -> None:
        """No resources are held."""

    def _refuse(self, what: str) -> NoReturn:
        raise UsageError(what, as_sentence(self.WHY))


class WithoutShell(WithoutKubernetes):
    """A base for those whose pods have no terminal."""

    attach = _refused("An interactive shell in a pod is not available.")


class WithoutOperator(WithoutShell):
    """A base for what is read-only: it has no operator to create or remove pods."""

    scale = _refused("Nothing can be scaled from here.")
    delete_pod = _refused("Nothing can be killed from here.")
    exec = _refused("Nothing can be executed from here.")

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
