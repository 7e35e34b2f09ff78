"""What every kind of cluster answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cockpit.model.cluster import Capability, ClusterRef, DashboardRoute
from cockpit.model.event import Event


@dataclass(frozen=True, slots=True)
class Scaled:
    """What a scale request did: counts before and after, and what the user should know."""

    group: str
    before: int
    after: int
    warning: str = ""


@dataclass(frozen=True, slots=True)
class ExecResult:
    exit_code: int
    stdout: str
    stderr: str


class Backend(Protocol):
    """One cluster. Every method may raise the errors of `cockpit.model.error`."""

    @property
    def ref(self) -> ClusterRef: ...

    def watch(self) -> AsyncIterator[Event]:
        """ClusterSeen, GroupsListed, PodsListed, Notice and SourceHealth (source `backend`).

        Yields the present first, then every change, until it is closed. A lost connection is
        told by SourceHealth and mended inside; the iterator does not end by itself.
        """
        ...

    async def scale(
        self,
        group: str,
        replicas: int | None = None,
        *,
        min_replicas: int | None = None,
        max_replicas: int | None = None,
        remove: Sequence[str] = (),
    ) -> Scaled:
        """Ask for `replicas` pods (None: leave the number), clamped to min and max.

        `remove` names pods that go first.
        """
        ...

    async def delete_pod(self, pod: str, *, grace_s: float) -> None:
        """Ask the pod to end: SIGTERM and `grace_s` seconds, or with 0 SIGKILL at once.

        Returns when the request is accepted, not when the pod is gone.
        """
        ...

    async def exec(self, pod: str, argv: Sequence[str]) -> ExecResult: ...

    def logs(self, pod: str, *, follow: bool, lines: int = 1000) -> AsyncIterator[str]:
        """The pod's own output, the last `lines` of it first; clean lines without a newline."""
        ...

    async def dashboard(self) -> DashboardRoute:
        """A route that works now. Raises UnreachableError when the head is not up."""
        ...

    async def capabilities(self) -> Mapping[str, Capability]:
        """By verb: `scale`, `delete_pod`, `exec`, `logs`, `launch`."""
        ...
