"""The loop that sources which poll share: interval, backoff, clocks and SourceHealth."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypedDict

from cockpit.model.clock import server_time
from cockpit.model.error import CockpitError
from cockpit.model.event import Event, SourceHealth
from cockpit.model.text import one_line
from cockpit.sources.polling.backoff import Backoff
from cockpit.sources.polling.interval import Pace
from cockpit.sources.polling.pause import pause


class PollingOptions(TypedDict, total=False):
    """The options of every polling source."""

    pace: Pace | None
    backoff: Backoff | None
    clock: Callable[[], float]
    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]


class PollingSource(ABC):
    """Call `poll` forever. A poll that raises CockpitError is retried with backoff.

    `clock` is the wall clock, for the times of events; intervals are measured with `monotonic`,
    since a wall clock can be set back. With a `pace`, polls are rare while the cluster is idle.
    """

    name: str
    rest_s = 60.0
    """Interval at rest, with a `Pace`."""
    first_retry_s, last_retry_s = 0.5, 15.0
    failed_rest_s = 60.0
    """Shortest interval after a failure at rest."""
    unannounced_s = 0.0
    """The next poll is in SourceHealth only when the interval is longer."""

    def __init__(
        self,
        *,
        poll_s: float,
        pace: Pace | None = None,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = server_time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._poll_s, self._pace = poll_s, pace
        self._backoff = backoff or Backoff(self.first_retry_s, self.last_retry_s)
        self._clock, self._monotonic = clock, monotonic
        self._sleep = pace.sleep if pace else sleep
        self._wait_s = 0.0

    @abstractmethod
    def poll(self) -> AsyncGenerator[Event, None]:
        """Yield the events of one poll, and last its `health`. May raise CockpitError."""

    async def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close what the polls used."""

    async def events(self) -> AsyncGenerator[Event, None]:
        try:
            while True:
                try:
                    async with aclosing(self.poll()) as polled:
                        async for event in polled:
                            yield event
                except CockpitError as error:
                    wait_s = self._pause_s(self._backoff.failed(), self.failed_rest_s)
                    yield self.health(wait_s, ok=False, error=str(error))
                await pause(self._wait_s, self._sleep)
        finally:
            await self.close()

    def health(
        self,
        wait_s: float | None = None,
        *,
        ok: bool = True,
        absent: bool = False,
        error: str = "",
    ) -> SourceHealth:
        """The state of the source, with the time of the next poll: by default, one interval."""
        self._wait_s = self._pause_s(self._poll_s, self.rest_s) if wait_s is None else wait_s
        if ok:
            self._backoff.worked()
        now_s = self._clock()
        announced = not ok or self._wait_s > self.unannounced_s
        return SourceHealth(
            at_s=now_s,
            source=self.name,
            ok=ok,
            absent=absent,
            error=one_line(error),
            retry_at_s=now_s + self._wait_s if announced else None,
        )

    def _pause_s(self, active_s: float, rest_s: float) -> float:
        return self._pace.pause_s(active_s, rest_s) if self._pace else active_s
