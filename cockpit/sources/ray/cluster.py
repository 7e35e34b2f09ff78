"""Nodes and jobs, polled from the dashboard: two requests a poll, however large the cluster."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from cockpit.model.cluster import Node
from cockpit.model.error import CockpitError
from cockpit.model.event import Event, JobsListed, NodesListed, SourceHealth
from cockpit.model.run import Job
from cockpit.model.text import one_line
from cockpit.sources.polling.backoff import Backoff
from cockpit.sources.polling.interval import Pace
from cockpit.sources.ray.dashboard import Dashboard

POLL_S = 1.0
JOBS_REST_S = 15.0
NODES_REST_S = 60.0
"""At rest, with a `Pace`: four requests a minute for jobs, one for nodes."""
FAILED_REST_S = 30.0


class RaySource:
    """NodesListed, JobsListed and SourceHealth (source `ray`), for ever.

    A poll that fails says so with the time of the next one; nothing is listed then, so that what
    was listed before stays, and grows old. With a `pace` it polls seldom while nothing goes on,
    and its SourceHealth says when it speaks next.
    """

    name = "ray"

    def __init__(
        self,
        dashboard: Dashboard,
        *,
        poll_s: float = POLL_S,
        pace: Pace | None = None,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._dashboard = dashboard
        self._poll_s = poll_s
        self._pace = pace
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._sleep = pace.sleep if pace else sleep
        self._nodes_s = -math.inf
        """When the nodes were listed last."""

    async def events(self) -> AsyncGenerator[Event, None]:
        failing = False
        while True:
            try:
                nodes, jobs = await self._ask(failing=failing)
            except CockpitError as error:
                failing = True
                wait_s = self._pause_s(self._backoff.failed(), FAILED_REST_S)
                now = self._clock()
                yield SourceHealth(
                    at_s=now,
                    source=self.name,
                    ok=False,
                    error=one_line(str(error)),
                    retry_at_s=now + wait_s,
                )
                await self._sleep(wait_s)
                continue
            failing = False
            self._backoff.worked()
            now = self._clock()
            if nodes is not None:
                self._nodes_s = now
                yield NodesListed(at_s=now, source=self.name, nodes=nodes)
            yield JobsListed(at_s=now, source=self.name, jobs=jobs)
            if self._pace:
                self._pace.jobs_alive(any(not job.status.is_over for job in jobs))
            wait_s = self._pause_s(self._poll_s, JOBS_REST_S)
            next_s = now + wait_s if wait_s > self._poll_s else None
            yield SourceHealth(at_s=now, source=self.name, ok=True, retry_at_s=next_s)
            await self._sleep(wait_s)

    async def _ask(self, *, failing: bool) -> tuple[tuple[Node, ...] | None, tuple[Job, ...]]:
        """Both at once; the nodes only when it is their turn."""
        # A clock that was set back does not put them off.
        if 0 <= self._clock() - self._nodes_s < self._pause_s(0.0, NODES_REST_S):
            return None, await self._dashboard.jobs()
        if failing:  # one request tells as much as two that it is still down
            nodes = await self._dashboard.nodes()
            return nodes, await self._dashboard.jobs()
        return await asyncio.gather(self._dashboard.nodes(), self._dashboard.jobs())

    def _pause_s(self, active_s: float, rest_s: float) -> float:
        return self._pace.pause_s(active_s, rest_s) if self._pace else active_s
