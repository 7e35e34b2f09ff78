"""The poll interval of sources: a second while the cluster is active, longer at rest.

An API server is shared by many users, and a UI stays open for days: at rest, all its requests must
stay below ten a minute. A watch reports when the cluster is active again. The head of a cluster on
hosts answers its users alone: there the interval at rest is a few seconds.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from cockpit.model.event import ClusterSeen, Event, JobsListed, PodsListed

REST_AFTER_S = 60.0
"""Without a job, a change or a user's request for this long, it is at rest."""
LEAST_S = 1.0


class Pace:
    """Shared by the sources of one cluster. `wake` may be called from any thread.

    `rest_at_most_s`: the longest interval at rest; a source may have a shorter one.
    """

    def __init__(
        self, *, rest_at_most_s: float = math.inf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._rest_at_most_s = clock, rest_at_most_s
        self._active_s = clock()
        self._jobs_alive = False
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._lock = threading.Lock()
        self._seen: dict[type[Event], object] = {}

    @property
    def at_rest(self) -> bool:
        return not self._jobs_alive and self._clock() - self._active_s >= REST_AFTER_S

    def wake(self) -> None:
        """Something was requested or has changed: sources that wait poll at once."""
        self._active_s = self._clock()
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for woken, loop in waiting.items():
            with suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(woken.set)

    def jobs_alive(self, alive: bool) -> None:
        """Whether a job is alive. A job that begins or ends wakes every source."""
        if alive != self._jobs_alive:
            self._jobs_alive = alive
            self.wake()

    def on_event(self, event: Event) -> None:
        """Events of the backend: changed pods, RayJobs or health end the rest."""
        if event.source != "backend":
            return
        match event:
            case PodsListed():
                seen: object = {(pod.name, pod.phase, pod.ready) for pod in event.pods}
            case JobsListed():
                seen = {(job.id, job.rayjob, job.status, job.deployment) for job in event.jobs}
            case ClusterSeen():
                seen = event.health
            case _:
                return
        before = self._seen.get(type(event))
        self._seen[type(event)] = seen
        if before is not None and before != seen:
            self.wake()

    def pause_s(self, active_s: float, rest_s: float) -> float:
        """How long to wait now: one or the other."""
        return max(active_s, min(rest_s, self._rest_at_most_s)) if self.at_rest else active_s

    async def sleep(self, seconds: float) -> None:
        """Sleep until the time is up or `wake` is called, and for at least LEAST_S."""
        await asyncio.sleep(min(seconds, LEAST_S))
        left_s = seconds - LEAST_S
        if left_s <= 0:
            return
        woken = asyncio.Event()
        with self._lock:
            self._waiting[woken] = asyncio.get_running_loop()
        try:
            # Not `wait_for`: until Python 3.12 it hides a cancellation that comes with `wake`.
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await woken.wait()
        finally:
            with self._lock:
                self._waiting.pop(woken, None)
