"""The lease of the cluster for one drill at a time: acquired, renewed and released.

As in client-go's leader election, the expiry of another holder is judged by local observation on
one clock: a lease that was not renewed for its duration is taken over, independent of the times in
it. A drill that loses its lease is aborted.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from cockpit.backends.protocol import Backend
from cockpit.format import in_seconds
from cockpit.model.error import CockpitError, LeaseHeldError, UnreachableError
from cockpit.model.text import one_line
from cockpit.sources.polling.pause import pause

Guard = Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]]
"""Runs it, and raises when the drill is aborted."""


class Timing(Struct, frozen=True):
    """In seconds, named as in client-go."""

    duration_s: float = 60.0
    """LeaseDuration: without a renewal for so long, others may take it."""
    deadline_s: float = 40.0
    """RenewDeadline: without a renewal for so long, this drill is aborted before others begin."""
    renew_s: float = 20.0
    retry_s: float = 5.0
    """RetryPeriod: between two looks at another's lease, and after a renewal that failed."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


TIMING = Timing()


@asynccontextmanager
async def held(
    backend: Backend,
    drill_id: str,
    *,
    guard: Guard,
    on_wait: Callable[[str], None],
    note: Callable[[str], None],
    lost: Callable[[str], None],
    timing: Timing = TIMING,
) -> AsyncIterator[None]:
    """Acquire the lease. Raises LeaseHeldError when another drill has it, and as `guard`.

    `waits` is called with a line while another's lease is observed for its duration, `note` with
    errors while the lease is held, and `lost` with the reason when it is lost.
    """
    holder = holder_of(drill_id, os.getpid())
    try:
        await guard(acquire(backend, holder, on_wait, timing))
    except LeaseHeldError:
        raise
    except BaseException:
        # The request may have been carried out.
        await _release(backend, holder, note, timing)
        raise
    keeping = asyncio.create_task(keep(backend, holder, note, lost, timing))
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await _release(backend, holder, note, timing)


async def renew(backend: Backend, drill_id: str, timing: Timing = TIMING) -> None:
    """Before an act of the drill: while this computer was suspended, no clock of it ran, and
    another drill may have taken the lease. Raises LeaseHeldError, or UnreachableError after the
    deadline of a renewal.
    """
    until_s = timing.clock() + timing.deadline_s
    while True:
        try:
            return await backend.hold(holder_of(drill_id, os.getpid()), timing.duration_s)
        except UnreachableError:
            if timing.clock() >= until_s:
                raise
        await pause(timing.retry_s, timing.sleep)


async def acquire(
    backend: Backend, holder: str, on_wait: Callable[[str], None], timing: Timing = TIMING
) -> None:
    """Raises LeaseHeldError for a holder that lives, by its clock or by what is observed."""
    try:
        await backend.hold(holder, timing.duration_s)
        return
    except LeaseHeldError as error:
        if error.current:
            raise
        seen = error
    on_wait(f"waiting {in_seconds(seen.ttl_s)} for a renewal of the lease. {one_line(seen.why)}")
    until_s = timing.clock() + seen.ttl_s
    while timing.clock() < until_s:
        await pause(timing.retry_s, timing.sleep)
        try:
            await backend.hold(holder, timing.duration_s)
            return
        except LeaseHeldError as error:
            if error.renewal != seen.renewal:
                raise
    await backend.hold(holder, timing.duration_s, expired=seen.renewal)


async def keep(
    backend: Backend,
    holder: str,
    note: Callable[[str], None],
    lost: Callable[[str], None],
    timing: Timing = TIMING,
) -> None:
    """Renew it until this is cancelled, or it is lost."""
    renewed_s = timing.clock()
    pause_s = timing.renew_s
    while True:
        await pause(pause_s, timing.sleep)
        left_s = renewed_s + timing.deadline_s - timing.clock()
        try:
            async with asyncio.timeout(max(left_s, timing.retry_s)):
                await backend.hold(holder, timing.duration_s)
        except LeaseHeldError as error:
            lost(f"the lease of the cluster was lost: {one_line(error.why)}")
            return
        except (CockpitError, TimeoutError) as error:
            why = one_line(error.what if isinstance(error, CockpitError) else "no answer")
            if timing.clock() - renewed_s >= timing.deadline_s:
                lost(
                    f"the lease of the cluster was not renewed in "
                    f"{in_seconds(timing.deadline_s)}: {why}"
                )
                return
            note(f"the lease could not be renewed: {why}")
            pause_s = timing.retry_s
        else:
            renewed_s, pause_s = timing.clock(), timing.renew_s


async def _release(
    backend: Backend, holder: str, note: Callable[[str], None], timing: Timing
) -> None:
    """Try a second time: until the lease ends by itself, all other drills are refused."""
    try:
        try:
            await backend.release(holder)
        except UnreachableError:  # perhaps the API server restarts
            await pause(timing.retry_s, timing.sleep)
            await backend.release(holder)
    except CockpitError as error:
        note(f"the lease was not released, and ends by itself: {one_line(error.what)}")


def holder_of(drill_id: str, pid: int, host: str = "") -> str:
    """The holder name of a drill of that process; the host is this one's if empty."""
    return f"{_process(pid, host)} ({drill_id})"


def is_own(holder: str) -> bool:
    """Whether a drill of this process called itself so."""
    return holder.startswith(f"{_process(os.getpid(), '')} ")


def _process(pid: int, host: str) -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())  # a container's user need not be in the list of users
    return f"{user}@{host or socket.gethostname()}:{pid}"
