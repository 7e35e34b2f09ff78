"""A recorded cluster behind the Protocol of every cluster: it can be looked at, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NoReturn

from cockpit.backends.protocol import VERBS, ExecResult, RayJobSpec, Scaled, Terminal
from cockpit.backends.without_kubernetes import WithoutOperator
from cockpit.model.cluster import Capability, ClusterRef, DashboardRoute
from cockpit.model.error import NotAllowedError, UnreachableError
from cockpit.model.event import Event
from cockpit.model.text import as_sentence

WHY = "this is a recording"


class RecordedBackend(WithoutOperator):
    """`ref` is the cluster that was recorded. Its events come from the player, not from here."""

    WHY = WHY

    def __init__(self, ref: ClusterRef) -> None:
        self._ref = ref

    @property
    def ref(self) -> ClusterRef:
        return self._ref

    async def watch(self) -> AsyncIterator[Event]:
        await asyncio.Event().wait()
        return
        yield  # an iterator that never says anything

    async def capabilities(self) -> Mapping[str, Capability]:
        # Not of every backend's, since a drill takes several: here it takes none of them.
        return dict.fromkeys((*VERBS, "drill"), Capability(False, as_sentence(WHY)))

    async def dashboard(self) -> DashboardRoute:
        raise UnreachableError(
            "There is no dashboard to ask.",
            "This is a recording: what was not recorded cannot be asked for any more.",
        )

    async def scale(
        self,
        group: str,
        replicas: int | None = None,
        *,
        min_replicas: int | None = None,
        max_replicas: int | None = None,
        remove: Sequence[str] = (),
        uid: str = "",
        expected: int | None = None,
    ) -> Scaled:
        self._refuse("Nothing can be scaled.")

    async def delete_pod(self, pod: str, *, uid: str, grace_s: float) -> None:
        self._refuse("Nothing can be killed.")

    async def exec(self, pod: str, argv: Sequence[str], *, uid: str = "") -> ExecResult:
        self._refuse("Nothing can be executed.")

    async def attach(
        self, pod: str, argv: Sequence[str], *, tty: bool, rows: int = 24, columns: int = 80
    ) -> Terminal:
        self._refuse("There is no shell.")

    def logs(
        self, pod: str, *, follow: bool, lines: int = 1000, previous: bool = False
    ) -> AsyncIterator[str]:
        self._refuse("A pod's own output is not recorded.")

    async def suspend(self, suspended: bool, *, uid: str = "") -> None:
        self._refuse("Nothing can be suspended or resumed.")

    async def cordon(self, machine: str, cordoned: bool, *, uid: str = "") -> None:
        self._refuse("Nothing can be cordoned.")

    async def create_rayjob(self, spec: RayJobSpec) -> str:
        self._refuse("Nothing can be launched.")

    def _refuse(self, what: str) -> NoReturn:
        raise NotAllowedError(what, as_sentence(WHY))
