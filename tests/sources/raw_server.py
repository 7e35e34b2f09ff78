"""A server that answers each request with given bytes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Answer = Callable[[str], bytes]
"""From the head of the request to the complete response."""


def http(status: int, body: bytes, *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


@dataclass
class RawServer:
    answer: Answer
    chunk_bytes: int = 0
    """The number of bytes sent at a time, with a pause after each; 0: all at once."""
    pause_s: float = 0.0
    hang: bool = False
    """Accepts the connection and sends nothing."""
    asked: list[str] = field(default_factory=list)
    first: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first request."""
    tls: ssl.SSLContext | None = None
    port: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[RawServer]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, ssl=self.tls)
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
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.asked.append(head)
            self.first.set()
            if self.hang:
                await asyncio.Event().wait()
            data = self.answer(head)
            step = self.chunk_bytes or len(data) or 1
            for start in range(0, len(data), step):
                writer.write(data[start : start + step])
                await writer.drain()
                await asyncio.sleep(self.pause_s)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client disconnected, which some of these tests check
        finally:
            self._tasks.discard(task)
            writer.close()
