"""Ray Serve: its deployments and replicas, polled from the dashboard."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Unpack

from cockpit.model.event import Event, ServeListed
from cockpit.model.serve import Deployment
from cockpit.sources.polling.source import PollingOptions, PollingSource
from cockpit.sources.ray.dashboard import Dashboard

POLL_S = 5.0
ABSENT_S = 30.0
NONE = "Ray Serve has no application here"


class ServeSource(PollingSource):
    """ServeListed when something has changed, and SourceHealth (source `serve`).

    Absent while no application is deployed.
    """

    name = "serve"

    def __init__(
        self, dashboard: Dashboard, *, poll_s: float = POLL_S, **polling: Unpack[PollingOptions]
    ) -> None:
        super().__init__(poll_s=poll_s, **polling)
        self._dashboard = dashboard
        self._listed: tuple[Deployment, ...] = ()

    async def poll(self) -> AsyncGenerator[Event, None]:
        found = await self._dashboard.deployments()
        if found != self._listed:
            self._listed = found
            yield ServeListed(at_s=self._clock(), source=self.name, deployments=found)
        if found:
            yield self.health()
        else:
            wait_s = max(ABSENT_S, self._pause_s(self._poll_s, self.rest_s))
            yield self.health(wait_s, absent=True, error=NONE)
