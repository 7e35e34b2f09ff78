"""Follow log files over HTTP: every line once, in order, across lost connections.

Ray's log stream can end cleanly while the job runs (ray #57002, #60665), and does not support
offsets. To resume, the log is read again and the known number of lines is dropped. A checksum over
them detects a replaced file.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeAlias

from msgspec import Struct

from cockpit.model.error import CockpitError, NotAllowedError
from cockpit.model.text import clean
from cockpit.sources.polling.backoff import Backoff
from cockpit.sources.polling.pause import pause
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import MissingError

LINE_LIMIT_BYTES = 16 * 1024
POLL_S = 1.0
"""Between two questions whether the writer is over."""
CLEAN_END_WAIT_S = 0.2
IDLE_S = 60.0
"""A stream without data is opened again, since a dead path looks equal; costs a complete read."""
REPLACED_AFTER_S = 10.0
"""No data before all known lines were read again: the file was truncated."""

Batch: TypeAlias = tuple[str, ...]
"""Clean lines; empty when all is well and nothing is new."""


class Trouble(Struct, frozen=True):
    """The log could not be read; it is tried again in `wait_s`."""

    error: CockpitError
    wait_s: float


class LogFile(Struct, frozen=True):
    """The location of a log. An empty `node_id`: not known yet."""

    node_id: str
    name: str
    over: bool = False
    """Nothing more will be written."""


Locate: TypeAlias = Callable[[], Awaitable[LogFile]]


class _ReplacedError(Exception):
    """The file is not the one whose lines were given."""


class _Given(Struct):
    """How much of a file has been given, and the checksum of it."""

    lines: int = 0
    crc: int = 0


class Follower:
    """One log, from its start or its last `tail_lines`. `batches` may be iterated once."""

    def __init__(
        self,
        dashboard: Dashboard,
        locate: Locate,
        *,
        tail_lines: int | None = None,
        follow: bool = True,
        poll_s: float = POLL_S,
        idle_s: float = IDLE_S,
        backoff: Backoff | None = None,
    ) -> None:
        self._dashboard, self._locate = dashboard, locate
        self._tail_lines, self._follow = tail_lines, follow
        self._poll_s, self._idle_s = poll_s, idle_s
        self._backoff = backoff or Backoff()
        self._given = _Given()
        self._given_of = ("", "")
        """The file that was read last: its node and its name."""

    async def batches(self) -> AsyncGenerator[Batch | Trouble, None]:
        """Yield lines as they are written, until the writer has ended and all lines were yielded.

        Without `follow`, only the current lines. Raises NotAllowedError, and MissingError without
        such a writer or its log; all other errors are a Trouble and are retried.
        """
        while True:
            file: LogFile | None = None
            try:
                # Checked before reading: once the writer has ended, its log is complete.
                file = await self._locate()
                last = file.over or not self._follow
                if file.node_id:
                    if _place(file) != self._given_of:
                        self._given_of, self._given = _place(file), _Given()
                    async with aclosing(self._rest(file) if last else self._live(file)) as reading:
                        async for batch in reading:
                            self._backoff.worked()
                            yield batch
                if last:
                    return
                await pause(CLEAN_END_WAIT_S if file.node_id else self._poll_s)
            except _ReplacedError:
                self._given = _Given()
            except NotAllowedError:
                raise
            except CockpitError as error:
                if isinstance(error, MissingError):
                    if file is None:
                        raise
                    if file.over or not self._follow:
                        raise _missing(file, error) from error
                if not self._follow:
                    raise
                wait_s = self._backoff.failed()
                # A driver's file is there a little after the driver: no trouble yet.
                yield () if isinstance(error, MissingError) else Trouble(error, wait_s)
                await pause(wait_s)

    async def _rest(self, file: LogFile) -> AsyncGenerator[Batch, None]:
        """The lines that were not yielded yet, up to the current end of the file."""
        seen = _Given()
        tail: deque[str] | None = None
        if self._tail_lines is not None and not self._given.lines:
            tail = deque(maxlen=self._tail_lines)
        async with self._dashboard.stream_log(
            file.node_id,
            file.name,
            follow=False,
            idle_s=self._idle_s,
            limit_bytes=LINE_LIMIT_BYTES + 1,
            torn=file.over or not self._follow,
        ) as batches:
            async for batch in batches:
                fresh = self._fresh(seen, batch)
                if tail is not None:
                    tail.extend(fresh)
                elif fresh:
                    yield fresh
        if seen.lines < self._given.lines:
            raise _ReplacedError
        if tail:
            yield tuple(tail)

    async def _live(self, file: LogFile) -> AsyncGenerator[Batch, None]:
        """Lines as they are written, until the stream or the writer ends, or the writer moves."""
        if self._tail_lines is not None and not self._given.lines:
            async for lines in self._rest(file):
                yield lines
        seen = _Given()
        asked_s = last_update_s = time.monotonic()
        has_moved = False
        step: asyncio.Task[list[bytes] | None] | None = None
        async with self._dashboard.stream_log(
            file.node_id, file.name, idle_s=self._idle_s, limit_bytes=LINE_LIMIT_BYTES + 1
        ) as batches:
            try:
                while True:
                    step = step or asyncio.create_task(_next(batches))
                    await asyncio.wait((step,), timeout=self._poll_s)
                    now_s = time.monotonic()
                    if step.done():
                        batch, step = step.result(), None
                        if batch is None:
                            return
                        last_update_s = now_s
                        yield self._fresh(seen, batch)
                    elif (
                        seen.lines < self._given.lines and now_s - last_update_s > REPLACED_AFTER_S
                    ):
                        raise _ReplacedError
                    if now_s - asked_s >= self._poll_s:
                        asked_s = now_s
                        now = await self._locate()
                        # Moved for a whole poll: what was written last has arrived.
                        if now.over or (has_moved and _place(now) != _place(file)):
                            return
                        has_moved = _place(now) != _place(file)
                        yield ()
            finally:
                if step is not None:
                    step.cancel()
                    await asyncio.gather(step, return_exceptions=True)

    def _fresh(self, seen: _Given, batch: list[bytes]) -> Batch:
        """Those lines of a batch that were not given, as text. Counts them as given."""
        old = min(len(batch), self._given.lines - seen.lines)
        for line in batch[:old]:
            seen.crc = zlib.crc32(line, seen.crc)
        seen.lines += old
        if old and seen.lines == self._given.lines and seen.crc != self._given.crc:
            raise _ReplacedError
        fresh = batch[old:]
        for line in fresh:
            self._given.crc = zlib.crc32(line, self._given.crc)
        self._given.lines += len(fresh)
        seen.lines += len(fresh)
        return tuple(map(_text, fresh))


async def _next(batches: AsyncGenerator[list[bytes], None]) -> list[bytes] | None:
    """A coroutine, so that it can be a task; None at the end."""
    return await anext(batches, None)


def _place(file: LogFile) -> tuple[str, str]:
    return file.node_id, file.name


def _missing(file: LogFile, error: MissingError) -> MissingError:
    return MissingError(
        f"The log {file.name} is not there any more",
        error.why,
        "a log goes with the node that wrote it; only logs shipped elsewhere outlive it",
        status=error.status,
    )


def _text(line: bytes) -> str:
    text = clean(line[:LINE_LIMIT_BYTES].decode(errors="replace"))
    return text + "…" if len(line) > LINE_LIMIT_BYTES else text
