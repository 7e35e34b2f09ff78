"""The files of each driver's telemetry stream, and whether the driver still writes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cockpit.model.run import Job
from cockpit.sources.ray.dashboard import Dashboard
from training.telemetry.names import file_name, segment_of

if TYPE_CHECKING:
    from cockpit.sources.telemetry.stream import Stream

SOURCE = "telemetry"


def rows(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """The files of each stream by number, under the name that its first has or had."""
    rows: dict[str, dict[int, str]] = {}
    for name in names:
        job, number = segment_of(name) or ("", 0)
        rows.setdefault(file_name(job) if job else name, {})[number] = name
    return rows


class DriverStates:
    """Which drivers are over, by a list of the jobs that is fresh enough for the question."""

    def __init__(
        self, dashboard: Dashboard, monotonic: Callable[[], float], fresh_s: float
    ) -> None:
        self._dashboard, self._monotonic, self._fresh_s = dashboard, monotonic, fresh_s
        self._listed: dict[str, Job] = {}
        self._listed_s = -math.inf
        self._lock = asyncio.Lock()

    async def is_over(self, stream: Stream) -> bool:
        async with self._lock:
            job = self._listed.get(stream.ray_id)
            fresh_s = max(stream.found_s, self._monotonic() - self._fresh_s)
            if self._listed_s < fresh_s and not (job and job.status.is_over):
                asked_s = self._monotonic()
                jobs = await self._dashboard.jobs()
                self._listed = {job.ray_id: job for job in jobs if job.ray_id}
                self._listed_s = asked_s
                job = self._listed.get(stream.ray_id)
        if job is not None:
            return job.status.is_over
        # Ray lists only the last driver of a submission, and none of a deleted one.
        return stream.progress.seq > 0 and not stream.running
