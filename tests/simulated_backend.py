"""A backend without a cluster: it tells the events it was given and remembers what was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from cockpit.backends.protocol import ExecResult, Scaled
from cockpit.model.cluster import Capability, ClusterRef, DashboardRoute
from cockpit.model.event import Event


@dataclass(slots=True)
class ScriptedBackend:
    """Says `events` once, then stays silent. `asked` holds each call that changes something."""

    events: Sequence[Event] = ()
    ref: ClusterRef = field(default_factory=lambda: ClusterRef("local", "scripted"))
    route: DashboardRoute = field(default_factory=lambda: DashboardRoute("http://127.0.0.1:9"))
    denied: Mapping[str, str] = field(default_factory=dict)
    asked: list[tuple[str, ...]] = field(default_factory=list)

    async def watch(self) -> AsyncIterator[Event]:
        for event in self.events:
            yield event
        await asyncio.Event().wait()

    async def scale(
        self,
        group: str,
        replicas: int | None = None,
        *,
        min_replicas: int | None = None,
        max_replicas: int | None = None,
        remove: Sequence[str] = (),
    ) -> Scaled:
        self.asked.append(("scale", group, str(replicas), *remove))
        return Scaled(group, 2, replicas if replicas is not None else 2)

    async def delete_pod(self, pod: str, *, grace_s: float) -> None:
        self.asked.append(("delete_pod", pod, f"{grace_s:g}"))

    async def exec(self, pod: str, argv: Sequence[str]) -> ExecResult:
        self.asked.append(("exec", pod, *argv))
        return ExecResult(0, "", "")

    async def logs(self, pod: str, *, follow: bool, lines: int = 1000) -> AsyncIterator[str]:
        for line in (f"{pod} says hello",) if lines else ():
            yield line

    async def dashboard(self) -> DashboardRoute:
        return self.route

    async def capabilities(self) -> Mapping[str, Capability]:
        verbs = ("scale", "delete_pod", "exec", "logs", "launch")
        return {
            verb: Capability(verb not in self.denied, self.denied.get(verb, "")) for verb in verbs
        }
