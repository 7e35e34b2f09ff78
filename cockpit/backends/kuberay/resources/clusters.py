"""Which RayClusters there are: for a choice, and for a screen that shows many."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from cockpit.backends.kuberay.api.client import ForbiddenError, KubeClient
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.fields import usable
from cockpit.backends.kuberay.api.reflector import Health, Reflector, Snapshot
from cockpit.backends.kuberay.resources.health import health_alone
from cockpit.backends.kuberay.resources.objects import summary
from cockpit.backends.kuberay.resources.raycluster import ray_cluster
from cockpit.model.clock import server_time
from cockpit.model.cluster import ClusterSummary
from cockpit.model.error import CockpitError
from cockpit.model.event import ClustersListed, Event, SourceHealth
from cockpit.model.text import one_line

KEEP_TELLING_S = 2.0


async def list_clusters(
    client: KubeClient, namespace: str | None, selector: str = ""
) -> tuple[ClusterSummary, ...]:
    """The RayClusters of a namespace, or with None all visible ones, that match the selector.

    KubeError 404: no such kind.
    """
    context = client.credentials.context.name
    found: list[ClusterSummary] = []
    async for page in client.pages(
        path_of(namespace), {"labelSelector": selector} if selector else None
    ):
        found += usable(lambda raw: _summary(raw, context), page.items)
    return tuple(sorted(found, key=_order))


async def where_else(client: KubeClient, name: str) -> str:
    """The flags for a cluster of that name in another namespace, as far as permitted."""
    try:
        found = [one.ref for one in await list_clusters(client, None) if one.ref.name == name]
    except CockpitError:
        found = []
    if not found:
        return "See what there is: cockpit clusters"
    flags = " or ".join(f"-n {one_line(ref.namespace)}" for ref in found[:3])
    return f"One of that name is elsewhere: {flags} --cluster {one_line(name)}"


def path_of(namespace: str | None) -> str:
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/ray.io/v1{scope}/rayclusters"


class FleetSource:
    """Yield ClustersListed and SourceHealth (source `context:NAME`) for one context.

    Without the permission to list all namespaces, only the context's namespace is listed.
    """

    def __init__(self, context: str, credentials: Callable[[], Credentials]) -> None:
        self.context = context
        self.name = f"context:{context}"
        self._credentials = credentials

    async def events(self) -> AsyncIterator[Event]:
        try:
            credentials = self._credentials()
        except CockpitError as error:
            yield self._health(ok=False, error=one_line(str(error)))
            return
        client = KubeClient(credentials)
        try:
            namespace: str | None = None
            while True:
                refused = False
                async for event in self._watch(client, namespace):
                    if event is None:
                        refused = True
                        break
                    yield event
                if not refused:
                    return
                namespace = credentials.context.namespace
        finally:
            await client.aclose()

    async def _watch(
        self, client: KubeClient, namespace: str | None
    ) -> AsyncIterator[Event | None]:
        """None: listing all namespaces is not allowed."""
        reflector = Reflector(
            client,
            path_of(namespace),
            lambda raw: _summary(raw, self.context),
            beat_s=KEEP_TELLING_S,
        )
        ok = False
        async for update in reflector.updates():
            match update:
                case Snapshot(objects=objects, complete=True):
                    clusters = tuple(sorted(objects.values(), key=_order))
                    yield ClustersListed(
                        at_s=server_time(),
                        source=self.name,
                        context=self.context,
                        clusters=clusters,
                    )
                case Health(error=ForbiddenError()) if namespace is None and not ok:
                    yield None
                    return
                case Health(ok=True):
                    ok = True
                    yield self._health(ok=True)
                case Health(error=error, retry_at_s=retry, missing=missing):
                    yield self._health(
                        ok=False,
                        error="no RayClusters: KubeRay is not installed"
                        if missing
                        else one_line(str(error)),
                        retry_at_s=retry,
                        absent=missing,
                    )

    def _health(
        self, *, ok: bool, error: str = "", retry_at_s: float | None = None, absent: bool = False
    ) -> SourceHealth:
        return SourceHealth(
            at_s=server_time(),
            source=self.name,
            ok=ok,
            error=error,
            retry_at_s=retry_at_s,
            absent=absent,
        )


def _summary(raw: Any, context: str) -> ClusterSummary:
    cluster = ray_cluster(raw)
    return summary(cluster, context, health_alone(cluster))


def _order(item: ClusterSummary) -> tuple[str, str]:
    return item.ref.namespace, item.ref.name
