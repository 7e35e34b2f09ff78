"""One call for all callers that want its result at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedCall(Generic[T]):
    """Belongs to one event loop. A cancelled caller does not cancel the call for the others.

    `keep`: later callers get the result too, unless the call has failed.
    """

    def __init__(self, call: Callable[[], Awaitable[T]], *, keep: bool = False) -> None:
        self._call, self._keep = call, keep
        self._running: asyncio.Task[T] | None = None

    async def result(self) -> T:
        """Raises what the call raises."""
        running = self._running
        if running is None or (running.done() and not (self._keep and not running.exception())):
            running = self._running = asyncio.ensure_future(self._once())
        return await asyncio.shield(running)

    async def aclose(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    async def _once(self) -> T:
        return await self._call()
