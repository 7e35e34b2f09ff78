"""HTTP/1.1 requests over asyncio's streams, on connections that are kept.

For many small requests: one takes 0.35 ms of CPU, and with httpx 1.4 ms (AMD EPYC, Python 3.11).
Most of the difference is httpx's pool and its layer over sockets. No proxies, no redirects, no
cookies.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol
from urllib.parse import quote, urlencode, urlsplit
from weakref import WeakKeyDictionary, WeakSet

from msgspec import Struct

from cockpit.format import in_seconds
from cockpit.sources.http.messages import Head, ResponseParser, request

KEPT = 10
"""Connections without a request that are kept open to one origin."""
KEPT_S = 5.0
"""How long they are kept: a server closes one that is idle, Ray's after 75 s."""
READ_BYTES = 1 << 16
KEEPALIVE = (
    # A peer that disappeared without closing (a laptop that slept, a firewall that forgot) is
    # noticed in half a minute, and costs no request.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
ADDRESS_S = 0.25
"""Before a host's next address is tried as well (RFC 8305)."""
_PATH = "/%:@!$&'()*+,;=~-._"
"""Characters of a path that stay as they are; `%` since paths are already quoted."""


class ReadTimeoutError(Exception):
    """No byte arrived within the timeout."""


class Origin(Struct, frozen=True):
    """Where requests are sent to. `check_peer`: see DashboardRoute."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    socket_path: str = ""
    server_name: str = ""
    """Whose certificate is expected; empty: the host's."""


def origin(
    base_url: str, *, tls: ssl.SSLContext | None, socket_path: str = "", server_name: str = ""
) -> Origin | None:
    """Return the origin of a URL, or None if this client cannot serve it and httpx must."""
    try:
        url = urlsplit(base_url)
        host, port = url.hostname or "", url.port
    except ValueError:
        return None
    secure = url.scheme == "https"
    # Without a context of its own, httpx loads the system's certificates.
    is_ascii = host.isascii() and server_name.isascii()
    if url.scheme not in ("http", "https") or not is_ascii or (secure and tls is None):
        return None
    if not host or url.username is not None or url.query or url.fragment:
        return None
    context = tls if secure else None
    return Origin(host, port or (443 if secure else 80), context, socket_path, server_name)


def has_proxy() -> bool:
    """Whether the environment names a proxy, for any host."""
    # On macOS, the system's settings may name one too.
    if sys.platform != "darwin" and not any(name.lower().endswith("_proxy") for name in os.environ):
        return False
    from urllib.request import getproxies  # 4 ms, with Python's own HTTP client

    return any(name in ("http", "https", "all") for name in getproxies())


class Response:
    """The head of a response; its body is read with `aiter_raw`. Named as in httpx."""

    is_stream_consumed = False
    content = b""

    def __init__(self, connection: _Connection, head: Head) -> None:
        self._connection = connection
        self.status_code = head.status_code
        self.headers = head.headers

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300

    async def aiter_raw(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives, without its framing. Raises ReadTimeoutError, OSError."""
        while (part := await self._connection.body_part()) is not None:
            yield part


_kept: WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Connection]] = WeakKeyDictionary()
"""Connections without a request: those of all clients of a loop. The API server and the dashboard
behind its proxy are one origin, and a TLS handshake takes as long as a request."""
_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakSet[Pool]] = WeakKeyDictionary()
"""Other clients of a loop, which `close_all` closes too."""


class Client:
    """Requests on kept connections. Belongs to the event loop of its first request."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    async def aclose(self) -> None:
        """Return when all sockets are closed that this client was the last to use."""
        kept = _kept_here()
        own = [connection for connection in kept if connection.user is self]
        kept[:] = [connection for connection in kept if connection.user is not self]
        for connection in own:
            await connection.aclose()

    @asynccontextmanager
    async def stream(
        self,
        to: Origin,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None,
        content: bytes | None,
        headers: Mapping[str, str],
        connect_s: float,
        read_s: float | None,
        check_peer: Callable[[], None] | None,
    ) -> AsyncIterator[Response]:
        """Send a request, and yield the response when its head has arrived.

        `read_s`: the timeout between two bytes, None for no limit. `check_peer` is called on each
        new connection before anything is sent. Raises ReadTimeoutError, OSError (TimeoutError if
        the request is not sent in time), and what `check_peer` raises.
        """
        fields = {"Host": urlsplit(url).netloc, **self._headers, **headers}
        if content is not None or method != "GET":
            fields["Content-Length"] = str(len(content or b""))
        target = _target(url, params)
        kept = _reusable(to, checked=check_peer is not None)
        connection = kept or await _connect(to, connect_s, check_peer)
        try:
            connection.read_s = read_s
            try:
                head = await connection.head(method, target, fields, content)
            except ConnectionError:
                # The server may have closed a kept connection at the moment of the request.
                if kept is None or method != "GET":
                    raise
                kept.close()
                connection = await _connect(to, connect_s, check_peer)
                connection.read_s = read_s
                head = await connection.head(method, target, fields, content)
            yield Response(connection, head)
        finally:
            kept_now = _kept_here()
            if connection.is_done and sum(each.to == to for each in kept_now) < KEPT:
                connection.idle_since_s = time.monotonic()
                connection.user = self
                kept_now.append(connection)
            else:
                connection.close()


class Pool(Protocol):
    """Connections of another client, such as httpx."""

    async def aclose(self) -> None: ...


def close_with_loop(pool: Pool) -> None:
    """Let `close_all` close the pool too, unless it does not exist any more by then."""
    _pools.setdefault(asyncio.get_running_loop(), WeakSet()).add(pool)


async def close_all() -> None:
    """Close the kept connections of this loop, which is about to end: they would keep it alive."""
    for connection in _kept.pop(asyncio.get_running_loop(), ()):
        await connection.aclose()
    for pool in tuple(_pools.pop(asyncio.get_running_loop(), ())):
        await pool.aclose()


def _kept_here() -> list[_Connection]:
    return _kept.setdefault(asyncio.get_running_loop(), [])


def _reusable(to: Origin, *, checked: bool) -> _Connection | None:
    """A kept connection to this origin; those that are not to be used again are closed."""
    now_s = time.monotonic()
    kept = _kept_here()
    listed, found = kept.copy(), None
    kept.clear()
    for connection in reversed(listed):
        if not connection.is_open or now_s - connection.idle_since_s >= KEPT_S:
            connection.close()
        elif found is None and connection.to == to and connection.is_checked >= checked:
            found = connection
        else:
            kept.insert(0, connection)
    return found


async def _connect(
    to: Origin, connect_s: float, check_peer: Callable[[], None] | None
) -> _Connection:
    # As bytes, which asyncio passes on: for text, Python's ssl loads its IDNA codec in 2 ms.
    server: Any = (to.server_name or to.host).encode("ascii") if to.tls is not None else None
    try:
        async with asyncio.timeout(connect_s):
            if to.socket_path:
                opened = await asyncio.open_unix_connection(
                    to.socket_path, ssl=to.tls, server_hostname=server, limit=READ_BYTES
                )
            else:
                opened = await asyncio.open_connection(
                    to.host,
                    to.port,
                    ssl=to.tls,
                    server_hostname=server,
                    limit=READ_BYTES,
                    happy_eyeballs_delay=ADDRESS_S,
                )
                for option in KEEPALIVE:
                    opened[1].get_extra_info("socket").setsockopt(*option)
    except TimeoutError as error:
        raise ConnectionError(f"no connection within {in_seconds(connect_s)}") from error
    connection = _Connection(to, *opened)
    if check_peer is not None:
        connection.is_checked = True
        try:
            check_peer()
        except BaseException:
            connection.close()
            raise
    return connection


class _Connection:
    def __init__(
        self, to: Origin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.to = to
        self._reader, self._writer = reader, writer
        self._response = ResponseParser()
        self.read_s: float | None = None
        self.idle_since_s = 0.0
        self.user: Client | None = None
        """Of its last request."""
        self.is_checked = False
        """Whether its peer was, by `check_peer`."""

    @property
    def is_done(self) -> bool:
        """Whether the request and its response are complete, and another can be sent."""
        return self._response.is_complete and not self._response.is_last

    @property
    def is_open(self) -> bool:
        """Whether the server has kept it open."""
        return not (self._reader.at_eof() or self._writer.is_closing())

    def close(self) -> None:
        # Not `close`: it waits until what is left to send has been sent.
        self._writer.transport.abort()

    async def aclose(self) -> None:
        self.close()
        with suppress(OSError):  # what ended the connection has been reported
            await self._writer.wait_closed()

    async def head(
        self, method: str, target: str, fields: Mapping[str, str], content: bytes | None
    ) -> Head:
        self._response = ResponseParser()
        try:
            self._writer.write(request(method, target, fields, content))
        except ValueError as error:
            raise ConnectionError(str(error)) from error
        async with asyncio.timeout(self.read_s):
            # A server that refuses a large body may close before it has read all of it.
            with suppress(ConnectionError):
                await self._writer.drain()
        while self._response.head is None:
            self._response.feed(await self._read())
        return self._response.head

    async def body_part(self) -> bytes | None:
        """The next part of the body as it arrives; None after the last."""
        while not self._response.body:
            if self._response.is_complete:
                return None
            self._response.feed(await self._read())
        return self._response.body.popleft()

    async def _read(self) -> bytes:
        if self.read_s is None:
            return await self._reader.read(READ_BYTES)
        try:
            async with asyncio.timeout(self.read_s):
                return await self._reader.read(READ_BYTES)
        except TimeoutError as error:
            raise ReadTimeoutError from error


def _target(url: str, params: Mapping[str, str] | None) -> str:
    split = urlsplit(url)
    path = quote(split.path, safe=_PATH) or "/"
    query = "&".join(filter(None, (split.query, urlencode(params or {}))))
    return f"{path}?{query}" if query else path
