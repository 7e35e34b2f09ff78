"""Ending a drill before its time: by the user, from any thread, or by an abort condition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from cockpit.drills.engine.journal import Entry
from cockpit.drills.engine.pod_script import has_answered
from cockpit.drills.faults.fault import Prepared
from cockpit.sources.polling.pause import end_if_cancelled

T = TypeVar("T")

ReasonToAbort = Callable[[], Awaitable[str]]
"""Why the drill has to end, or nothing."""


class Aborted(Exception):
    """With the reason, as a short text."""


class Abort:
    """Call `reason_to_abort` every `every_s` while work is guarded and the abort is armed."""

    def __init__(self, reason_to_abort: ReasonToAbort, every_s: float) -> None:
        self._reason_to_abort, self._every_s = reason_to_abort, every_s
        self._why = ""
        self._requested = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.armed = False

    def request(self, why: str) -> None:
        """From any thread; the first reason counts."""
        self._why = self._why or why
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._requested.set)

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work; cancel it and raise Aborted when the abort is requested."""
        self._loop = asyncio.get_running_loop()
        doing = asyncio.create_task(work)
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
            raise Aborted(watching.result())
        finally:
            doing.cancel()
            watching.cancel()
            await asyncio.gather(doing, watching, return_exceptions=True)

    async def _watch(self) -> str:
        while not self._why:
            if self.armed and (why := await self._reason_to_abort()):
                return f"abort condition: {why}"
            try:
                async with asyncio.timeout(self._every_s):
                    await self._requested.wait()
            except TimeoutError:
                end_if_cancelled()
        return self._why


async def to_the_end(begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Complete the task even if the caller is cancelled; the cancellation continues afterwards.

    A session that closes cancels every task of its loop, including the one that undoes: that one is
    started again.
    """
    cancelled: asyncio.CancelledError | None = None
    doing = asyncio.create_task(begin())
    again = True
    while True:
        try:
            done = await asyncio.shield(doing)
        except asyncio.CancelledError as error:
            cancelled = error
            if doing.cancelled():
                if not again:
                    raise
                again, doing = False, asyncio.create_task(begin())
            continue
        if cancelled is not None:
            raise cancelled
        return done


WAIT_S = 10.0
"""Waits for the result of an injection that is aborted: the undo comes after it."""


class Injection:
    """Apply the fault in a separate task, so that an abort does not interrupt it halfway."""

    def __init__(self, entry: Entry | None, prepared: Prepared, limit_s: float) -> None:
        """`entry` is its undo, None where there is nothing to undo."""
        self.entry = entry
        self.took_effect = prepared.took_effect
        self._until_s = asyncio.get_running_loop().time() + limit_s
        self._applying = asyncio.ensure_future(prepared.apply())

    async def begun(self) -> None:
        """Wait until the fault has begun. Raises what applying it raises."""
        await asyncio.shield(self._applying)

    async def answered(self) -> bool:
        """Wait for the result, until the limit and at most `WAIT_S`. Return whether there was one.

        A task without a result is cancelled, but its fault may still begin later.
        """
        if not self._applying.done():
            left_s = self._until_s - asyncio.get_running_loop().time()
            await asyncio.wait({self._applying}, timeout=max(0.0, min(left_s, WAIT_S)))
        if not self._applying.done():
            self._applying.cancel()
            await asyncio.gather(self._applying, return_exceptions=True)
        if self._applying.cancelled():
            return False
        error = self._applying.exception()
        return error is None or has_answered(error)
