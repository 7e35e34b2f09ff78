"""The UI on Kubernetes: a session on one RayCluster, and another one on all clusters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

from cockpit.backends.kuberay.api.kubeconfig import KubeConfig
from cockpit.backends.kuberay.resources.clusters import FleetSource
from cockpit.backends.without_kubernetes import WithoutOperator
from cockpit.cli.options import kubernetes
from cockpit.cli.options.cluster_choice import SeveralError
from cockpit.cli.screen import connection as on_backend
from cockpit.config.cluster_flags import Place
from cockpit.model.cluster import Capability, ClusterPattern, ClusterRef, DashboardRoute
from cockpit.model.error import CockpitError, UnreachableError
from cockpit.model.event import Event
from cockpit.model.text import one_line
from cockpit.session import builder
from cockpit.session.session import Session, Source
from cockpit.tui.changes.actions import Connection, Log


def connection(
    where: Place,
    configured: KubeConfig,
    log: Log,
    *,
    read_only: bool = False,
    protected: Sequence[ClusterPattern] = (),
) -> Connection:
    """Connect to the selected cluster; without a session if the user will choose one in the UI."""
    beside = _fleet(configured)

    def reconnect(ref: ClusterRef, log: Log) -> Connection:
        # An explicit dashboard is that of the cluster that was named with it.
        there = where if ref == kubernetes.named(where, configured) else Place()
        return on_backend.connection(
            kubernetes.backend(there, configured, ref), read_only=read_only, protected=protected
        )

    try:
        ref = _chosen(where, configured, log)
        made = reconnect(ref, log) if ref is not None else Connection(None)
    except BaseException:
        beside.close()
        raise
    return Connection(
        made.session, made.actions, made.log_source, fleet=beside, reconnect=reconnect
    )


def _chosen(where: Place, configured: KubeConfig, log: Log) -> ClusterRef | None:
    """None: the user chooses. An unreachable context is an error only if it was selected."""
    try:
        return kubernetes.chosen(where, configured)
    except SeveralError as error:
        log(one_line(error.what))
        return None
    except CockpitError as error:
        if where.context or len(configured.contexts) < 2:
            raise
        log(one_line(str(error)))
        return None


def _fleet(configured: KubeConfig) -> Session:
    """Start a session with one watch per context; an unreachable one does not delay the others."""

    def sources() -> Sequence[Source]:
        return [
            FleetSource(context.name, partial(kubernetes.credentials, configured, context.name))
            for context in configured.contexts
        ]

    made = builder.session_on(NoCluster(), sources=(), more=sources)
    made.start()
    return made


class NoCluster(WithoutOperator):
    """The backend of a session on many clusters: it yields nothing and refuses every change."""

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
