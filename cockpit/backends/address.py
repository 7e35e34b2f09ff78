"""A Ray cluster that is known only by its dashboard's URL.

Its pods are its Ray nodes. Only jobs can be changed: there is no operator.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import NoReturn
from urllib.parse import SplitResult, urlsplit

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
from cockpit.sources.polling.backoff import Backoff
from cockpit.sources.polling.pause import pause
from cockpit.sources.ray.dashboard import Dashboard

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
                    nodes = await dashboard.nodes()
                except CockpitError as error:
                    wait_s, now = backoff.failed(), server_time()
                    yield self._seen(now, ClusterHealth.UNKNOWN, one_line(error.what))
                    yield source_health(now, SOURCE, error, now + wait_s)
                    await pause(wait_s, self._sleep)
                    continue
                backoff.worked()
                now = server_time()
                head = any(node.is_head and node.alive for node in nodes)
                health = ClusterHealth.READY if head else ClusterHealth.DOWN
                yield self._seen(now, health, "" if head else "its head is dead", version)
                yield GroupsListed(at_s=now, source=SOURCE, groups=_groups(nodes))
                yield PodsListed(at_s=now, source=SOURCE, pods=tuple(map(_pod, nodes)))
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


def _groups(nodes: Sequence[Node]) -> tuple[WorkerGroup, ...]:
    workers = [node for node in nodes if not node.is_head and node.alive]
    if not workers:
        return ()
    count = len(workers)
    resources = Resources(
        cpus=workers[0].resources.get("CPU", 0.0), gpus=workers[0].resources.get("GPU", 0.0)
    )
    return (WorkerGroup(WORKERS, count, count, count, count, resources),)


def _pod(node: Node) -> Pod:
    return Pod(
        name=f"{node.hostname or node.ip}-{node.id[:6]}",
        group=HEAD_GROUP if node.is_head else WORKERS,
        node_type=NodeType.HEAD if node.is_head else NodeType.WORKER,
        phase=PodPhase.RUNNING if node.alive else PodPhase.FAILED,
        ready=node.alive,
        ip=node.ip,
        reason=node.state_message,
        host=node.hostname,
        gpus=node.resources.get("GPU", 0.0),
    )
