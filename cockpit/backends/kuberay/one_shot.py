"""A one-shot query of a RayCluster: all resources concurrently, without a watch.

Pods are read as the table that kubectl prints, each row with the pod's metadata. The complete
object is read only for pods that are not ready, for the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from cockpit.backends.kuberay.api.client import KubeClient, KubeError
from cockpit.backends.kuberay.api.fields import (
    UNUSABLE,
    checked,
    items,
    mapping,
    seconds,
    text,
    usable,
)
from cockpit.backends.kuberay.backend import KubeRayBackend
from cockpit.backends.kuberay.resources import objects
from cockpit.backends.kuberay.resources.health import health, health_alone
from cockpit.backends.kuberay.resources.raycluster import RayCluster, ray_cluster
from cockpit.backends.kuberay.watch import rayjob_of
from cockpit.model.clock import server_time
from cockpit.model.cluster import ClusterHealth, ClusterRef, DashboardRoute, NodeType, Pod, PodPhase
from cockpit.model.error import CockpitError
from cockpit.model.event import (
    ClusterSeen,
    Event,
    GroupsListed,
    JobsListed,
    KubernetesNodesListed,
    PodsListed,
    SourceHealth,
)
from cockpit.model.run import Job
from cockpit.model.text import one_line
from cockpit.sources.polling.shared_call import SharedCall

SOURCE = "backend"
REASONS = 20
"""Pods whose object is read for its reason; of more, the table's own has to do."""
NODES = 20
"""Up to this number, each node is read alone: the list of a large cluster has megabytes."""
_ENDED = {"Completed": PodPhase.SUCCEEDED, "Succeeded": PodPhase.SUCCEEDED}
_FAILED = ("Failed", "Error", "OOMKilled", "Evicted", "ContainerStatusUnknown", "DeadlineExceeded")


class OneShotBackend(KubeRayBackend):
    """Its `watch` yields the present state, and then nothing more.

    The cluster's object is read once, for the state and for the route to the dashboard.
    """

    @cached_property
    def _object(self) -> SharedCall[Any]:
        return SharedCall(lambda: self.client.get(self._path), keep=True)

    async def watch(self) -> AsyncIterator[Event]:
        if "rayjobs" in self._kinds:
            # Ray's jobs are listed too. The dashboard takes the longest, so it is asked first.
            self._dashboards.begin(self.ref)
        read = self._object.result()
        for event in await one_shot_events(self.client, self.ref, self._kinds, read):
            yield event
        await asyncio.Event().wait()

    async def _find_dashboard(self) -> DashboardRoute:
        self._dashboards.begin(self.ref)
        return await super()._find_dashboard()

    async def aclose(self) -> None:
        await self._object.aclose()
        await super().aclose()

    async def _raw(self) -> Any:
        return await self._of_cluster(self._object.result())


async def one_shot_events(
    client: KubeClient, ref: ClusterRef, kinds: Collection[str], read: Awaitable[Any]
) -> list[Event]:
    """The wanted of `cluster`, `pods`, `rayjobs` and `nodes`. A refusal is an event, not raised.

    `read` returns the cluster's object, or raises as `KubeClient.get`.
    """
    read = asyncio.ensure_future(read)  # before the jobs, which nothing waits for
    jobs = asyncio.create_task(_rayjobs(client, ref)) if "rayjobs" in kinds else None
    try:
        found = await _cluster(client, ref, read, with_pods="pods" in kinds)
        if "nodes" in kinds:
            pods = next((event.pods for event in found if isinstance(event, PodsListed)), ())
            found[-1:-1] = await _nodes(client, {pod.host for pod in pods if pod.host})
        if jobs is not None:
            found[-1:-1] = await jobs  # the health is last
        return found
    finally:
        if jobs is not None:
            jobs.cancel()


async def _cluster(
    client: KubeClient, ref: ClusterRef, read: Awaitable[Any], *, with_pods: bool
) -> list[Event]:
    try:
        cluster = ray_cluster(await read)
    except (CockpitError, *UNUSABLE) as error:
        removed = isinstance(error, KubeError) and error.status == 404
        where = f"RayCluster {ref.name} in namespace {ref.namespace}"
        message = f"there is no {where}" if removed else one_line(str(error))
        now = server_time()
        state = ClusterHealth.DOWN if removed else ClusterHealth.UNKNOWN
        return [
            ClusterSeen(at_s=now, source=SOURCE, ref=ref, health=state, message=message),
            SourceHealth(at_s=now, source=SOURCE, ok=False, error=message),
        ]
    pods: list[Pod] | None = None
    reported: list[Event] = []
    if with_pods:
        try:
            pods = await _pods(client, cluster)
        except CockpitError as error:
            reported = [_refused("pods", error)]
    now = server_time()
    state, message = health_alone(cluster) if pods is None else health(cluster, pods)
    events: list[Event] = [
        ClusterSeen(
            at_s=now,
            source=SOURCE,
            ref=ref,
            health=state,
            message=message,
            ray_version=cluster.ray_version,
            uid=cluster.uid,
            queue=cluster.queue,
        ),
        GroupsListed(at_s=now, source=SOURCE, groups=objects.worker_groups(cluster, pods or ())),
    ]
    if pods is not None:
        events.append(PodsListed(at_s=now, source=SOURCE, pods=tuple(pods)))
    return [*events, *reported, SourceHealth(at_s=now, source=SOURCE, ok=True)]


async def _rayjobs(client: KubeClient, ref: ClusterRef) -> list[Event]:
    found: list[Job] = []
    try:
        async for page in client.pages(f"/apis/ray.io/v1/namespaces/{ref.namespace}/rayjobs"):
            found += [job for raw in page.items if (job := rayjob_of(raw, ref)) is not None]
    except CockpitError as error:
        return [_refused("rayjobs", error)]
    return [JobsListed(at_s=server_time(), source=SOURCE, jobs=tuple(found))]


async def _nodes(client: KubeClient, names: Collection[str]) -> list[Event]:
    """The nodes of these names: each of a few, or out of the list of all."""
    path = "/api/v1/nodes"
    raw: list[Any] = []
    try:
        if len(names) <= NODES:
            paths = [f"{path}/{checked('node', name)}" for name in sorted(names)]
            answers = await asyncio.gather(*map(client.find, paths))
            raw += [each for each in answers if each is not None]  # None: it was just deleted
        else:
            async for page in client.pages(path):
                raw += page.items
    except CockpitError as error:
        return [_refused("nodes", error)]
    found = [node for node in usable(objects.kubernetes_node, raw) if node.name in names]
    return [KubernetesNodesListed(at_s=server_time(), source=SOURCE, nodes=tuple(found))]


def _refused(kind: str, error: CockpitError) -> SourceHealth:
    message = one_line(error.why or error.what)
    return SourceHealth(at_s=server_time(), source=f"{SOURCE}:{kind}", ok=False, error=message)


async def _pods(client: KubeClient, cluster: RayCluster) -> list[Pod]:
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    labels = {"labelSelector": f"{objects.CLUSTER_LABEL}={cluster.name}"}
    table = await client.table(path, labels)
    titles = [str(column.get("name", "")) for column in items(table, "columnDefinitions")]
    gpus = {group.name: group.resources.gpus for group in cluster.groups}
    pods = usable(lambda row: _pod(titles, row, gpus), items(table, "rows"))
    return await _with_reasons(client, path, pods)


async def _with_reasons(client: KubeClient, path: str, pods: list[Pod]) -> list[Pod]:
    """Read the objects of unready pods, if there are few."""
    unready = [pod.name for pod in pods if not pod.ready][:REASONS]
    if not unready:
        return pods
    answers = await asyncio.gather(
        *(client.get(f"{path}/{name}") for name in unready), return_exceptions=True
    )
    found = usable(objects.pod, (raw for raw in answers if not isinstance(raw, BaseException)))
    by_name = {pod.name: pod for pod in found}
    return [by_name.get(pod.name, pod) for pod in pods]


def _pod(titles: Sequence[str], row: Mapping[str, Any], gpus: Mapping[str, float]) -> Pod:
    cells = {title: str(cell) for title, cell in zip(titles, row.get("cells") or (), strict=False)}
    meta = mapping(mapping(row, "object"), "metadata")
    labels = mapping(meta, "labels")
    group, reported = text(labels, objects.GROUP_LABEL), one_line(cells.get("Status", ""))
    ready, _, containers = cells.get("Ready", "").partition("/")
    phase = _phase(reported)
    well = phase is PodPhase.RUNNING and ready == containers not in ("", "0")
    is_head = text(labels, objects.TYPE_LABEL) == NodeType.HEAD.value
    return Pod(
        name=text(meta, "name"),
        group=group,
        node_type=NodeType.HEAD if is_head else NodeType.WORKER,
        phase=phase,
        ready=well,
        ip=_given(cells, "IP"),
        created_s=seconds(meta.get("creationTimestamp")),
        restarts=_restarts(cells.get("Restarts", "")),
        reason="" if well else reported,
        host=_given(cells, "Node"),
        gpus=0.0 if is_head else gpus.get(group, 0.0),
        replica=text(labels, objects.REPLICA_LABEL),
        uid=text(meta, "uid"),
    )


def _phase(message: str) -> PodPhase:
    """kubectl's status is a phase, or what a container waits for or died of."""
    if message in ("Running", "Pending", "Terminating", "Unknown"):
        return PodPhase(message)
    if message in _ENDED:
        return _ENDED[message]
    return PodPhase.FAILED if message in _FAILED else PodPhase.PENDING


def _given(row: dict[str, str], column: str) -> str:
    value = one_line(row.get(column, ""))
    return "" if value == "<none>" else value


def _restarts(text: str) -> int:
    """Parse `3 (2m ago)`."""
    first = text.partition(" ")[0]
    return int(first) if first.isdecimal() else 0
