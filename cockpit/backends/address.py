"""A Ray cluster that is known only by its dashboard's URL.

Its pods are its Ray nodes. Only jobs can be changed: there is no operator.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import NoReturn
from urllib.parse import SplitResult, urlsplit

from msgspec.structs import replace

from cockpit.backends.protocol import VERBS
from cockpit.backends.ray_token import dashboard_address, ray_token
from cockpit.backends.without_kubernetes import WithoutOperator
from cockpit.model.clock import server_time
from cockpit.model.cluster import (
    Capability,
    ClusterHealth,
    ClusterRef,
    DashboardRoute,
    Node,
    NodeType,
    Pod,
    PodPhase,
    Resources,
    WorkerGroup,
)
from cockpit.model.error import CockpitError, UsageError
from cockpit.model.event import (
    ClusterSeen,
    Event,
    GroupsListed,
    PodsListed,
    source_health,
)
from cockpit.model.secret import without_credentials
from cockpit.model.text import as_sentence, one_line
from cockpit.model.waiting import AutoscalerReport
from cockpit.sources.polling.backoff import Backoff
from cockpit.sources.polling.pause import pause
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import AnswerError

POLL_S = 2.0
SOURCE = "backend"
HEAD_GROUP = "headgroup"
WORKERS = "workers"


class AddressBackend(WithoutOperator):
    """`url` is the dashboard's: http or https, host and port."""

    WHY = "this cluster is known by its dashboard's address alone"

    def __init__(
        self,
        url: str,
        *,
        token: Callable[[], str] = ray_token,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        parts = _parts(url)
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"{one_line(without_credentials(url))!r} is not the address of a Ray dashboard.",
                todo="Give it like this: --address http://head:8265",
            )
        self._url = url.rstrip("/")
        self._name = parts.netloc.rpartition("@")[2]
        self._token, self._sleep = token, sleep

    @property
    def ref(self) -> ClusterRef:
        return ClusterRef(backend="address", name=self._name)

    async def watch(self) -> AsyncIterator[Event]:
        backoff = Backoff()
        version = ""
        async with Dashboard(self.dashboard) as dashboard:
            while True:
                try:
                    version = version or (await dashboard.version()).ray
                    nodes, report = await asyncio.gather(dashboard.nodes(), _report(dashboard))
                except CockpitError as error:
                    wait_s, now = backoff.failed(), server_time()
                    yield self._seen(now, ClusterHealth.UNKNOWN, one_line(error.what))
                    yield source_health(now, SOURCE, error, now + wait_s)
                    await pause(wait_s, self._sleep)
                    continue
                backoff.worked()
                now = server_time()
                head = any(node.is_head and node.alive for node in nodes)
                report = _current(nodes, report)
                groups = _groups(nodes, report)
                yield self._seen(now, *_health(head, groups, report), version)
                yield GroupsListed(at_s=now, source=SOURCE, groups=groups)
                yield PodsListed(at_s=now, source=SOURCE, pods=_pods(nodes, report))
                yield source_health(now, SOURCE)
                await pause(POLL_S, self._sleep)

    async def dashboard(self) -> DashboardRoute:
        url, headers = dashboard_address(self._url, self._token())
        return DashboardRoute(url, headers, via="address")

    async def capabilities(self) -> Mapping[str, Capability]:
        able = dict.fromkeys(VERBS, Capability(False, self.WHY))
        return able | {"launch": Capability(True)}

    def _refuse(self, what: str) -> NoReturn:
        raise UsageError(
            what,
            as_sentence(self.WHY),
            "On KubeRay, name the cluster with --context, --namespace and --cluster.",
        )

    def _seen(
        self, at_s: float, health: ClusterHealth, message: str, version: str = ""
    ) -> ClusterSeen:
        return ClusterSeen(
            at_s=at_s,
            source=SOURCE,
            ref=self.ref,
            health=health,
            message=message,
            ray_version=version,
        )


def _parts(url: str) -> SplitResult | None:
    """None for an invalid URL (`http://[`)."""
    try:
        return urlsplit(url)
    except ValueError:
        return None


async def _report(dashboard: Dashboard) -> AutoscalerReport:
    try:
        return await dashboard.autoscaler()
    except AnswerError:  # the GCS is slow, or another server: the nodes are what matters
        return AutoscalerReport()


def _health(
    head: bool, groups: Sequence[WorkerGroup], report: AutoscalerReport
) -> tuple[ClusterHealth, str]:
    if not head:
        return ClusterHealth.DOWN, "its head is dead"
    is_whole = all(group.ready >= group.desired for group in groups)
    return ClusterHealth.READY if is_whole else ClusterHealth.DEGRADED, report.message


def _groups(nodes: Sequence[Node], report: AutoscalerReport) -> tuple[WorkerGroup, ...]:
    """A group for each type of node that the autoscaler has or launches, and one for the others."""
    workers = [node for node in nodes if not node.is_head and node.alive]
    pending = [node.type for node in report.pending]
    names = [_group(node, report) for node in workers] + pending + list(report.launching)
    groups = []
    for name in dict.fromkeys(names):
        alive = [node for node in workers if _group(node, report) == name]
        launching = report.launching.get(name, 0)
        desired = len(alive) + pending.count(name) + launching
        offered = alive[0].resources if alive else {}
        groups.append(
            WorkerGroup(
                name=name,
                desired=desired,
                ready=len(alive),
                min=desired,
                max=desired,
                resources=Resources(cpus=offered.get("CPU", 0.0), gpus=offered.get("GPU", 0.0)),
                autoscaled=name != WORKERS,
                note=f"{launching} launching" if launching else "",
            )
        )
    return tuple(groups)


def _group(node: Node, report: AutoscalerReport) -> str:
    return HEAD_GROUP if node.is_head else report.types.get(node.ip, WORKERS)


def _current(nodes: Sequence[Node], report: AutoscalerReport) -> AutoscalerReport:
    """The report without the nodes that have joined since it was written."""
    joined = {node.ip for node in nodes if node.alive}
    pending = tuple(node for node in report.pending if node.address not in joined)
    return replace(report, pending=pending)


def _pods(nodes: Sequence[Node], report: AutoscalerReport) -> tuple[Pod, ...]:
    pods = [
        Pod(
            name=f"{node.hostname or node.ip}-{node.id[:6]}",
            group=_group(node, report),
            node_type=NodeType.HEAD if node.is_head else NodeType.WORKER,
            phase=PodPhase.RUNNING if node.alive else PodPhase.FAILED,
            ready=node.alive,
            ip=node.ip,
            reason=node.state_message,
            host=node.hostname,
            gpus=node.resources.get("GPU", 0.0),
        )
        for node in nodes
    ]
    pods += [
        Pod(
            name=node.address,
            group=node.type,
            node_type=NodeType.WORKER,
            phase=PodPhase.PENDING,
            ready=False,
            ip=node.address,
            reason=node.status,
        )
        for node in report.pending
    ]
    return tuple(pods)
