"""The files of each driver's telemetry stream, and whether the driver still writes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from cockpit.model.run import Job
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.telemetry.records import Progress
from training.telemetry.wire import file_name, segment_of


class Stream(Struct):
    """The files of one driver, being read."""

    node_id: str
    ray_id: str
    """The Ray job that writes it; empty if it is not in the name."""
    found_s: float
    """By the monotonic clock."""
    files: dict[int, str] = field(default_factory=dict)
    """The known files: by number, the name."""
    at: int = 0
    """The number of the file that is read."""
    progress: Progress = field(default_factory=Progress)
    running: set[str] = field(default_factory=set)
    """Runs in it that have not ended."""
    error: str = ""
    read: asyncio.Event = field(default_factory=asyncio.Event)
    """Its contents at discovery have been read, or have failed to be read."""
    done: bool = False
    lost: bool = False
    """It, or its node, is not there; should it be listed again, it is read on."""

    @property
    def name(self) -> str:
        """Of the file that is read."""
        return self.files.get(self.at) or file_name(self.ray_id, self.at)

    @property
    def next(self) -> int | None:
        """The next file in the row."""
        return min((number for number in self.files if number > self.at), default=None)

    def listed(self, files: dict[int, str]) -> None:
        if self.lost and self.at not in files and not any(n > self.at for n in files):
            self.at, self.progress = min(files), Progress()  # created again under the old name
        self.files = files

    def announced(self) -> bool:
        """Whether the stream announces that it continues in another file."""
        number = self.progress.next_segment
        if number != self.at + 1 or not self.ray_id:
            return False
        self.files.setdefault(number, file_name(self.ray_id, number))
        return True


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
