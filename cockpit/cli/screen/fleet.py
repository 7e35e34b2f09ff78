"""All clusters of all contexts as a session of its own, beside the one that is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

from cockpit.backends.kuberay.api.kubeconfig import KubeConfig
from cockpit.backends.kuberay.resources.clusters import FleetSource
from cockpit.backends.without_kubernetes import WithoutOperator
from cockpit.cli.options import kubernetes
from cockpit.model.cluster import Capability, ClusterRef, DashboardRoute
from cockpit.model.error import UnreachableError
from cockpit.model.event import Event
from cockpit.session.session import Session, Source


def session(configured: KubeConfig) -> Session:
    """Started; one watch a context. A context that does not answer holds up no other."""

    def sources() -> Sequence[Source]:
        return [
            FleetSource(context.name, partial(kubernetes.credentials, configured, context.name))
            for context in configured.contexts
        ]

    made = Session(NoCluster(), sources)
    made.start()
    return made


class NoCluster(WithoutOperator):
    """Where no cluster is looked at, but many: it says nothing and refuses everything."""

    WHY = "no cluster is chosen"

    @property
    def ref(self) -> ClusterRef:
        return ClusterRef("kuberay", "")

    async def watch(self) -> AsyncIterator[Event]:
        await asyncio.Event().wait()
        yield Event(at_s=0.0, source="")  # never: it makes this a generator

    async def dashboard(self) -> DashboardRoute:
        raise UnreachableError("There is no dashboard: no cluster is chosen.")

    async def capabilities(self) -> Mapping[str, Capability]:
        return self.refused()
