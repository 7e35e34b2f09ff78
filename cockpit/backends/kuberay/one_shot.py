"""One look at a RayCluster: everything at once, and no watch behind it.

Pods come as the table that kubectl prints (1,000 of them are 140 KB in 10 ms, where the objects are
10 MB in half a second); only of those that are not ready the object is read, for the reason. A
table has no labels, so each group is asked for by its own.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Collection
from typing import Any

from cockpit.backends.kuberay.api.client import KubeClient, KubeError
from cockpit.backends.kuberay.api.fields import items
from cockpit.backends.kuberay.backend import KubeRayBackend
from cockpit.backends.kuberay.resources import objects
from cockpit.backends.kuberay.resources.health import health, health_alone
from cockpit.backends.kuberay.resources.raycluster import RayCluster, ray_cluster
from cockpit.backends.kuberay.watch import rayjob_of
from cockpit.model.cluster import ClusterHealth, ClusterRef, NodeType, Pod, PodPhase
from cockpit.model.error import CockpitError
from cockpit.model.event import (
    ClusterSeen,
    Event,
    GroupsListed,
    JobsListed,
    PodsListed,
    SourceHealth,
)
from cockpit.model.run import Job
from cockpit.model.text import one_line

SOURCE = "backend"
REASONS = 20
"""Pods whose object is read for its reason; of more, the table's word has to do."""
_AGE = re.compile(r"(\d+)([ydhms])")
_UNIT_S = {"y": 31_536_000, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_ENDED = {"Completed": PodPhase.SUCCEEDED, "Succeeded": PodPhase.SUCCEEDED}
_FAILED = ("Failed", "Error", "OOMKilled", "Evicted", "ContainerStatusUnknown", "DeadlineExceeded")


class OneShotBackend(KubeRayBackend):
    """Its `watch` says what is true now, and then nothing more."""

    async def watch(self) -> AsyncIterator[Event]:
        for event in await glance(self.client, self.ref, self._kinds):
            yield event
        await asyncio.Event().wait()


async def glance(client: KubeClient, ref: ClusterRef, kinds: Collection[str]) -> list[Event]:
    """Of `cluster`, `pods` and `rayjobs` those that are wanted. A refusal is told, not raised."""
    jobs = asyncio.create_task(_rayjobs(client, ref)) if "rayjobs" in kinds else None
    try:
        found = await _cluster(client, ref, with_pods="pods" in kinds)
        if jobs is not None:
            found[-1:-1] = await jobs  # the word on health comes last
        return found
    finally:
        if jobs is not None:
            jobs.cancel()


async def _cluster(client: KubeClient, ref: ClusterRef, *, with_pods: bool) -> list[Event]:
    path = f"/apis/ray.io/v1/namespaces/{ref.namespace}/rayclusters/{ref.name}"
    try:
        cluster = ray_cluster(await client.get(path))
    except CockpitError as error:
        gone = isinstance(error, KubeError) and error.status == 404
        where = f"RayCluster {ref.name} in namespace {ref.namespace}"
        message = f"there is no {where}" if gone else one_line(str(error))
        now = time.time()
        state = ClusterHealth.DOWN if gone else ClusterHealth.UNKNOWN
        return [
            ClusterSeen(at_s=now, source=SOURCE, ref=ref, health=state, message=message),
            SourceHealth(at_s=now, source=SOURCE, ok=False, error=message),
        ]
    pods: list[Pod] | None = None
    told: list[Event] = []
    if with_pods:
        try:
            pods = await _pods(client, cluster)
        except CockpitError as error:
            told = [_refused("pods", error)]
    now = time.time()
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
        ),
        GroupsListed(at_s=now, source=SOURCE, groups=objects.worker_groups(cluster, pods or ())),
    ]
    if pods is not None:
        events.append(PodsListed(at_s=now, source=SOURCE, pods=tuple(pods)))
    return [*events, *told, SourceHealth(at_s=now, source=SOURCE, ok=True)]


async def _rayjobs(client: KubeClient, ref: ClusterRef) -> list[Event]:
    found: list[Job] = []
    try:
        async for page in client.pages(f"/apis/ray.io/v1/namespaces/{ref.namespace}/rayjobs"):
            found += [job for raw in page.items if (job := rayjob_of(raw, ref)) is not None]
    except CockpitError as error:
        return [_refused("rayjobs", error)]
    return [JobsListed(at_s=time.time(), source=SOURCE, jobs=tuple(found))]


def _refused(kind: str, error: CockpitError) -> SourceHealth:
    message = one_line(error.why or error.what)
    return SourceHealth(at_s=time.time(), source=f"{SOURCE}:{kind}", ok=False, error=message)


async def _pods(client: KubeClient, cluster: RayCluster) -> list[Pod]:
    mine = f"{objects.CLUSTER_LABEL}={cluster.name}"
    names = [group.name for group in cluster.groups]
    head = f"{mine},{objects.TYPE_LABEL}=head"
    selectors = [(head, "headgroup", NodeType.HEAD, 0.0)] + [
        (
            f"{mine},{objects.TYPE_LABEL}!=head,{objects.GROUP_LABEL}={group.name}",
            group.name,
            NodeType.WORKER,
            group.resources.gpus,
        )
        for group in cluster.groups
    ]
    if names:  # a group that was taken out of the object may still have pods
        left = f"{mine},{objects.TYPE_LABEL}!=head,{objects.GROUP_LABEL} notin ({','.join(names)})"
        selectors.append((left, "", NodeType.WORKER, 0.0))
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    tables = await asyncio.gather(
        *(client.table(path, {"labelSelector": selector}) for selector, *_ in selectors)
    )
    now = time.time()
    pods = [
        made
        for (_, group, kind, gpus), table in zip(selectors, tables, strict=True)
        for row in _rows(table)
        if (made := _pod(row, group, kind, gpus, now)) is not None
    ]
    return await _with_reasons(client, path, pods)


async def _with_reasons(client: KubeClient, path: str, pods: list[Pod]) -> list[Pod]:
    """Those that are not ready as their objects tell it, as far as there are few of them."""
    unready = [pod.name for pod in pods if not pod.ready][:REASONS]
    if not unready:
        return pods
    answers = await asyncio.gather(
        *(client.get(f"{path}/{name}") for name in unready), return_exceptions=True
    )
    known = {
        name: objects.pod(raw)
        for name, raw in zip(unready, answers, strict=True)
        if not isinstance(raw, BaseException)
    }
    return [known.get(pod.name, pod) for pod in pods]


def _rows(table: Any) -> list[dict[str, str]]:
    """The cells of each row by the title of their column."""
    titles = [str(column.get("name", "")) for column in items(table, "columnDefinitions")]
    return [
        {title: str(cell) for title, cell in zip(titles, row.get("cells") or (), strict=False)}
        for row in items(table, "rows")
    ]


def _pod(row: dict[str, str], group: str, kind: NodeType, gpus: float, now_s: float) -> Pod | None:
    name, said = one_line(row.get("Name", "")), one_line(row.get("Status", ""))
    if not name:
        return None
    ready, _, containers = row.get("Ready", "").partition("/")
    phase = _phase(said)
    well = phase is PodPhase.RUNNING and ready == containers not in ("", "0")
    return Pod(
        name=name,
        group=group,
        node_type=kind,
        phase=phase,
        ready=well,
        ip=_given(row, "IP"),
        created_s=now_s - _age_s(row.get("Age", "")),
        restarts=_restarts(row.get("Restarts", "")),
        reason="" if well else said,
        host=_given(row, "Node"),
        gpus=gpus,
    )


def _phase(said: str) -> PodPhase:
    """kubectl's status is a phase, or what a container waits for or died of."""
    if said in ("Running", "Pending", "Terminating", "Unknown"):
        return PodPhase(said)
    if said in _ENDED:
        return _ENDED[said]
    return PodPhase.FAILED if said in _FAILED else PodPhase.PENDING


def _given(row: dict[str, str], column: str) -> str:
    value = one_line(row.get(column, ""))
    return "" if value == "<none>" else value


def _age_s(text: str) -> float:
    """`5d3h` in seconds, as exact as it is printed."""
    return float(sum(int(number) * _UNIT_S[unit] for number, unit in _AGE.findall(text)))


def _restarts(text: str) -> int:
    """`3 (2m ago)`."""
    first = text.partition(" ")[0]
    return int(first) if first.isdecimal() else 0
