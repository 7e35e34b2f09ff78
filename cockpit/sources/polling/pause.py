"""The pause between two attempts of a retry loop, which ends a cancelled one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


def end_if_cancelled() -> None:
    """Raise the cancellation that a request hid behind its own error, which would be retried."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def pause(seconds: float, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
    end_if_cancelled()
    await sleep(seconds)
