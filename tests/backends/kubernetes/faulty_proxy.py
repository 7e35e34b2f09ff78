"""An HTTP proxy before the real API server, with administrator permissions and faults.

Each request has a separate connection to the server. Requests that do not match `faults` pass
unchanged.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from tests.cluster.testbed import Testbed


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault of the next request with `match` in its first line, once."""

    match: str
    answer: bytes = b""
    """Given in place of the server's."""
    cut_after: int | None = None
    """The connection is reset after this number of bytes of the server's response."""
    stall_after: int | None = None
    """No data after this number of bytes; the connection stays open."""


def refusal(status: int, body: bytes = b"", headers: str = "") -> bytes:
    head = f"HTTP/1.1 {status} Refused\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@dataclass
class FaultyProxy:
    testbed: Testbed
    folder: Path
    faults: deque[Fault] = field(default_factory=deque)
    requests: list[str] = field(default_factory=list)
    """The first line of each request, without HTTP's version."""
    port: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def kubeconfig(self) -> Path:
        path = self.folder / "faulty.kubeconfig"
        cluster = {"server": f"http://127.0.0.1:{self.port}"}
        path.write_text(
            yaml.safe_dump(
                {
                    "current-context": "faulty",
                    "clusters": [{"name": "faulty", "cluster": cluster}],
                    "users": [{"name": "nobody", "user": {}}],
                    "contexts": [
                        {"name": "faulty", "context": {"cluster": "faulty", "user": "nobody"}}
                    ],
                }
            )
        )
        return path

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[FaultyProxy]:
        await self.listen()
        try:
            yield self
        finally:
            await self.refuse()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Every connection is cut, and new ones are refused until `listen`."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def asked(self, text: str) -> list[str]:
        return [request for request in self.requests if text in request]

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:
            writer.transport.abort()  # it arrived during the close
            return
        task = asyncio.create_task(self._answer(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            first = head.split(b" HTTP/1.1\r\n")[0].decode()
            self.requests.append(first)
            lines = head.split(b"\r\n")
            length = [line for line in lines if line.lower().startswith(b"content-length:")]
            body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
            fault = self._fault(first)
            if fault.answer:
                writer.write(fault.answer)
                await writer.drain()
                return
            kept = [line for line in lines[:-2] if not line.lower().startswith(b"connection:")]
            request = b"\r\n".join([*kept, b"Connection: close", b"", b""]) + body
            await self._pass_on(request, fault, writer)
        except (OSError, EOFError):
            pass
        finally:
            writer.transport.abort()

    def _fault(self, first: str) -> Fault:
        for fault in self.faults:
            if fault.match in first:
                self.faults.remove(fault)
                return fault
        return Fault("")

    async def _pass_on(self, request: bytes, fault: Fault, writer: asyncio.StreamWriter) -> None:
        authority = self.testbed.plane.authority
        context = ssl.create_default_context(cafile=str(authority.certificate))
        context.load_cert_chain(authority.folder / "admin.crt", authority.folder / "admin.key")
        url = urlsplit(self.testbed.plane.server)
        upstream, up = await asyncio.open_connection(url.hostname, url.port, ssl=context)
        try:
            up.write(request)
            passed = 0
            while data := await upstream.read(4096):
                if fault.cut_after is not None and passed + len(data) >= fault.cut_after:
                    writer.write(data[: fault.cut_after - passed])
                    await writer.drain()
                    return
                if fault.stall_after is not None and passed + len(data) >= fault.stall_after:
                    writer.write(data[: fault.stall_after - passed])
                    await asyncio.Event().wait()
                passed += len(data)
                writer.write(data)
                await writer.drain()
            writer.write_eof()
        finally:
            up.close()
            with suppress(OSError):
                await up.wait_closed()
