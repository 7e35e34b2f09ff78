"""A fault that was asked for, and whether it may still begin after its undo."""

from __future__ import annotations

import asyncio

from cockpit.drills.engine.journal import Entry
from cockpit.drills.engine.pod_script import has_answered
from cockpit.drills.faults.fault import Prepared

WAIT_S = 10.0
"""For the answer of an injection that is aborted: its undo comes after it then."""


class Injection:
    """Applies the fault in a task of its own: an abort does not cut it off in the middle."""

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
        """Wait for the answer, until the limit and `WAIT_S` at most; whether there was one.

        What has not answered is cut off, and the fault may begin later all the same.
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
