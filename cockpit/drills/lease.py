"""The cluster for one drill at a time: taken, held, and let go."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from cockpit.backends.protocol import Backend
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line

TTL_S = 60.0
"""After so long without a word it is free."""


@asynccontextmanager
async def held(backend: Backend, drill_id: str, note: Callable[[str], None]) -> AsyncIterator[None]:
    """Raises CockpitError when another one has it. What goes wrong later is noted, no more: the
    drill goes on, since its undo is what matters then.
    """
    holder = holder_of(drill_id, os.getpid())
    await backend.hold(holder, TTL_S)
    keeping = asyncio.create_task(_keep(backend, holder, note))
    try:
        yield
    finally:
        keeping.cancel()
        try:
            await backend.release(holder)
        except CockpitError as error:
            note(f"the lease was not released, and ends by itself: {one_line(error.what)}")


async def _keep(backend: Backend, holder: str, note: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(TTL_S / 3)
        try:
            await backend.hold(holder, TTL_S)
        except CockpitError as error:
            note(f"the lease could not be renewed: {one_line(error.what)}")


def holder_of(drill_id: str, pid: int) -> str:
    """What a drill of that process on this machine is called towards others."""
    return f"{_process(pid)} ({drill_id})"


def is_own(holder: str) -> bool:
    """Whether a drill of this process called itself so."""
    return holder.startswith(f"{_process(os.getpid())} ")


def _process(pid: int) -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())  # a container's user need not be in the list of users
    return f"{user}@{socket.gethostname()}:{pid}"
