"""Nodes and jobs, polled from the dashboard: two requests a poll, however large the cluster."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from typing import Unpack

from cockpit.model.cluster import Node
from cockpit.model.event import Event, JobsListed, NodesListed
from cockpit.model.run import Job
from cockpit.sources.polling.source import PollingOptions, PollingSource
from cockpit.sources.ray.dashboard import Dashboard

POLL_S = 1.0
NODES_REST_S = 60.0
"""At rest, with a `Pace`: four requests a minute for jobs, one for nodes."""


class RaySource(PollingSource):
    """NodesListed, JobsListed and SourceHealth (source `ray`).

    A poll that fails lists nothing: what was listed before stays, and its age grows.
    """

    name = "ray"
    rest_s = 15.0
    failed_rest_s = 30.0

    def __init__(
        self, dashboard: Dashboard, *, poll_s: float = POLL_S, **polling: Unpack[PollingOptions]
    ) -> None:
        super().__init__(poll_s=poll_s, **polling)
        self._dashboard, self.unannounced_s = dashboard, poll_s
        self._nodes_s = -math.inf
        """When the nodes were listed last, by the monotonic clock."""
        self._dead: frozenset[str] = frozenset()
        """The ids of the nodes that have died."""
        self._failing = False

    async def poll(self) -> AsyncGenerator[Event, None]:
        failing, self._failing = self._failing, True
        nodes, jobs = await self._ask(failing=failing)
        self._failing = False
        now_s = self._clock()
        if nodes is not None:
            self._nodes_s = self._monotonic()
            self._dead = frozenset(node.id for node in nodes if not node.alive)
            yield NodesListed(at_s=now_s, source=self.name, nodes=nodes)
        jobs = tuple(job.with_lost_driver() if self._is_lost(job) else job for job in jobs)
        yield JobsListed(at_s=now_s, source=self.name, jobs=jobs)
        if self._pace:
            self._pace.jobs_alive(any(not job.status.is_over for job in jobs))
        yield self.health()

    def _is_lost(self, job: Job) -> bool:
        """Whether the node of its driver has died, whose end Ray may not notice."""
        return job.driver_node_id in self._dead and not job.status.is_over

    async def _ask(self, *, failing: bool) -> tuple[tuple[Node, ...] | None, tuple[Job, ...]]:
        """List both at once; the nodes only when they are due."""
        if self._monotonic() - self._nodes_s < self._pause_s(0.0, NODES_REST_S):
            return None, await self._dashboard.jobs()
        if failing:  # one request is enough to find that it is still down
            nodes = await self._dashboard.nodes()
            return nodes, await self._dashboard.jobs()
        return await asyncio.gather(self._dashboard.nodes(), self._dashboard.jobs())
