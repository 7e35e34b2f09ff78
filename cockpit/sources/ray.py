"""Nodes and jobs, polled from the dashboard: two requests a poll, however large the cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from cockpit.model.error import CockpitError
from cockpit.model.event import Event, JobsListed, NodesListed, SourceHealth
from cockpit.model.text import one_line
from cockpit.sources.backoff import Backoff
from cockpit.sources.dashboard import Dashboard

POLL_S = 1.0


class RaySource:
    """NodesListed, JobsListed and SourceHealth (source `ray`), for ever.

    A poll that fails says so with the time of the next one; nothing is listed then, so that what
    was listed before stays, and grows old.
    """

    name = "ray"

    def __init__(
        self,
        dashboard: Dashboard,
        *,
        poll_s: float = POLL_S,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._dashboard = dashboard
        self._poll_s = poll_s
        self._backoff = backoff or Backoff()
        self._clock, self._sleep = clock, sleep

    async def events(self) -> AsyncGenerator[Event, None]:
        while True:
            try:
                nodes, jobs = await asyncio.gather(self._dashboard.nodes(), self._dashboard.jobs())
            except CockpitError as error:
                wait_s, now = self._backoff.failed(), self._clock()
                yield SourceHealth(
                    at_s=now,
                    source=self.name,
                    ok=False,
                    error=one_line(str(error)),
                    retry_at_s=now + wait_s,
                )
                await self._sleep(wait_s)
                continue
            self._backoff.worked()
            now = self._clock()
            yield NodesListed(at_s=now, source=self.name, nodes=nodes)
            yield JobsListed(at_s=now, source=self.name, jobs=jobs)
            yield SourceHealth(at_s=now, source=self.name, ok=True)
            await self._sleep(self._poll_s)
