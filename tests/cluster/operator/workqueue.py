"""A work queue: each key is processed by one worker at a time, and once for many changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import httpx

from tests.cluster.operator.api import ApiError
from tests.cluster.operator.mirror import Key

log = logging.getLogger(__name__)

FIRST_RETRY_S = 0.005
LAST_RETRY_S = 5.0


class Unsettled(Exception):
    """Retry soon: a temporary obstacle."""


class WorkQueue:
    def __init__(self, snapshot: Callable[[Key], Awaitable[float | None]]) -> None:
        """`look` reconciles one key, and may request another call after some seconds."""
        self._look = snapshot
        self._waiting: set[Key] = set()
        self._busy: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._later: dict[Key, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, key: Key) -> None:
        if key in self._busy:
            self._waiting.add(key)
            return
        self._busy.add(key)
        task = asyncio.get_running_loop().create_task(self._work(key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def add_after(self, key: Key, delay_s: float) -> None:
        """The earlier of two delays counts."""
        loop = asyncio.get_running_loop()
        pending = self._later.get(key)
        if pending is not None and not pending.cancelled():
            if pending.when() <= loop.time() + delay_s:
                return
            pending.cancel()
        self._later[key] = loop.call_later(delay_s, self._due, key)

    def _due(self, key: Key) -> None:
        self._later.pop(key, None)
        self.add(key)

    async def _work(self, key: Key) -> None:
        try:
            again_s = await self._look(key)
            self._failures.pop(key, None)
        except (ApiError, httpx.HTTPError, Unsettled) as error:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            again_s = min(FIRST_RETRY_S * 2**failures, LAST_RETRY_S)
            expected = isinstance(error, Unsettled) or getattr(error, "status", 0) == 409
            log.log(logging.DEBUG if expected else logging.WARNING, "%s: %s", key, error)
        finally:
            self._busy.discard(key)
        if again_s is not None:
            self.add_after(key, again_s)
        if key in self._waiting:
            self._waiting.discard(key)
            self.add(key)
