"""A TCP proxy that cuts connections in the middle of the server's data."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from cockpit.model.cluster import DashboardRoute


@dataclass
class CuttingProxy:
    """Each answer to a request for `path` ends with a reset after the next number of bytes."""

    target: DashboardRoute
    path: str
    cuts: deque[int]
    cut: int = 0
    requests: list[str] = field(default_factory=list)
    """Method and path of each request."""
    port: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def route(self) -> DashboardRoute:
        return DashboardRoute(f"http://127.0.0.1:{self.port}", self.target.headers)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[CuttingProxy]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        url = urlsplit(self.target.base_url)
        upstream, up = await asyncio.open_connection(url.hostname, url.port)
        left: list[int | None] = [None]
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._requests(reader, up, left))
                both.create_task(self._answers(upstream, writer, left))
        except* (ConnectionError, EOFError, asyncio.CancelledError):
            pass  # either side closed, the cut was reached, or the test is over
        finally:
            self._tasks.discard(task)
            writer.transport.abort()
            up.transport.abort()

    async def _requests(
        self, reader: asyncio.StreamReader, up: asyncio.StreamWriter, left: list[int | None]
    ) -> None:
        while data := await reader.read(65536):
            left[0] = None
            if b" HTTP/1.1\r\n" in data:
                self.requests.append(data.partition(b" HTTP/1.1\r\n")[0].decode())
            if self.path.encode() in data and self.cuts:
                left[0] = self.cuts.popleft()
            up.write(data)
            await up.drain()
        raise EOFError

    async def _answers(
        self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter, left: list[int | None]
    ) -> None:
        while data := await upstream.read(4096):
            budget = left[0]
            if budget is not None:
                left[0] = budget - len(data)
                if budget <= len(data):
                    self.cut += 1
                    writer.write(data[:budget])
                    with suppress(ConnectionError):
                        await writer.drain()
                    raise EOFError
            writer.write(data)
            await writer.drain()
        raise EOFError
