"""One API server as calls that give plain JSON. Every failure is one of our errors.

`cockpit.sources.http.client` sends the requests; httpx, whose import costs 50 ms, does where it is
needed: through a proxy, and with the system's certificates. Belongs to the event loop of the first
request.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.error_message import (
    ForbiddenError,
    KubeError,
    NoDataError,
    not_kubernetes,
    refusal,
    retry_after_s,
    unreachable,
)
from cockpit.model.decoding.limited_json import MAX_BYTES, loads
from cockpit.model.error import UnreachableError, UsageError, reason_of
from cockpit.model.secret import without_credentials
from cockpit.model.text import one_line
from cockpit.sources.http import bounded_body, failures

if TYPE_CHECKING:
    import httpx

    from cockpit.sources.http import client
else:
    # httpx's own command line is a third of its import time: see cockpit/sources/ray/http.py.
    sys.modules.setdefault("httpx._main", None)

__all__ = ["ForbiddenError", "KubeClient", "KubeError", "Page", "PatchKind"]

TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 4.0
WHOLE_ANSWER_S = 60.0
"""Of a complete response, except for streams; the timeout above is between two bytes."""
WAITS = 4
"""How often an answer of 429 or 503 is waited out before it is raised."""
LONGEST_WAIT_S = 10.0
LINE_BYTES = 8 << 20
"""No object is so large: etcd holds 1.5 MB of each at most."""
PAGE = 250
"""Objects in a page: large enough that 5,000 pods are 20 requests, small enough to show soon."""

_TYPES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": bounded_body.ACCEPT_ENCODING,
    "User-Agent": "cockpit",
}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PatchKind = Literal["json", "merge", "strategic", "apply"]


class Page(Struct, frozen=True):
    """A page of a list. `resource_version` is that of the complete list."""

    items: list[Any]
    resource_version: str
    more: bool


class KubeClient:
    """`requests` counts requests: tests use it to check the limit at rest."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        timeout_s: float = TIMEOUT_S,
        whole_s: float = WHOLE_ANSWER_S,
        limit_bytes: int = MAX_BYTES,
    ) -> None:
        self.credentials = credentials
        self.requests = 0
        self._timeout_s, self._whole_s, self._limit_bytes = timeout_s, whole_s, limit_bytes
        self._direct: client.Client | None = None
        self._http: httpx.AsyncClient | None = None
        self._tls: ssl.SSLContext | None = None
        self._opening: asyncio.Lock | None = None
        self._busy: Counter[httpx.AsyncClient] = Counter()

    async def aclose(self) -> None:
        if self._direct is not None:
            await self._direct.aclose()
        pools = {*self._busy, *([self._http] if self._http else [])}
        self._http = None
        self._busy.clear()
        for http in pools:
            await http.aclose()

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        return _decoded(path, await self._send("GET", path, params))

    async def find(self, path: str, params: Mapping[str, str] | None = None) -> Any | None:
        """As `get`; None for what does not exist (404)."""
        try:
            return await self.get(path, params)
        except KubeError as error:
            if error.status != 404:
                raise
            return None

    async def text(self, path: str, params: Mapping[str, str] | None = None) -> str:
        return (await self._send("GET", path, params)).decode(errors="replace")

    async def table(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        """Return a list as the columns that kubectl prints, with the metadata of each object."""
        query = {**(params or {}), "includeObject": "Metadata"}
        return _decoded(path, await self._send("GET", path, query, accept=TABLE))

    async def create(self, path: str, body: Any) -> Any:
        return _decoded(path, await self._send("POST", path, body=body))

    async def delete(self, path: str, body: Any = None) -> Any:
        return _decoded(path, await self._send("DELETE", path, body=body))

    async def patch(
        self,
        path: str,
        body: Any,
        *,
        kind: PatchKind,
        params: Mapping[str, str] | None = None,
    ) -> Any:
        return _decoded(path, await self._send("PATCH", path, params, body, _TYPES[kind]))

    async def pages(
        self, path: str, params: Mapping[str, str] | None = None, *, limit: int = PAGE
    ) -> AsyncGenerator[Page, None]:
        """Yield the list in pages, each as soon as it is received.

        A list that expires during that (410) raises KubeError; start again.
        """
        go_on = ""
        while True:
            query = {**(params or {}), "limit": str(limit)}
            if go_on:
                query["continue"] = go_on
            answer = await self.get(path, query)
            try:
                meta, items = answer["metadata"], answer.get("items") or []
                go_on = str(meta.get("continue") or "")
                version = str(meta.get("resourceVersion") or "")
            except (KeyError, TypeError, AttributeError) as error:
                raise not_kubernetes(path) from error
            yield Page(items, version, bool(go_on))
            if not go_on:
                return

    async def objects(self, path: str, params: Mapping[str, str] | None = None) -> list[Any]:
        """All pages of the list together."""
        return [each async for page in self.pages(path, params) for each in page.items]

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, idle_s: float | None
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """Chunks of a streamed answer; NoDataError after `idle_s` without one."""
        for last in (False, True):
            headers = await self.credentials.headers()
            with self._explained():
                async with self._request("GET", path, params, None, headers, idle_s) as response:
                    if response.is_success:
                        yield self._chunks(response)
                        return
                    content = await bounded_body.beginning(response)
            if response.status_code != 401 or last or not self.credentials.can_change:
                raise refusal(self.credentials, "GET", path, response.status_code, content)
            self.credentials.forget()

    async def _chunks(self, response: bounded_body.Response) -> AsyncGenerator[bytes, None]:
        with self._explained():
            async for chunk in bounded_body.pieces(response):
                yield chunk

    async def lines(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        idle_s: float | None,
        opened: Callable[[], None] | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the response's lines as they arrive, without their newline.

        `opened` is called when the server has accepted the request. A line is split at LINE_BYTES,
        so that a pod without newlines does not fill the memory.
        """
        async with self.stream(path, params, idle_s=idle_s) as chunks:
            if opened is not None:
                opened()
            rest = b""
            async for chunk in chunks:
                *whole, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
                for line in whole:
                    yield line
                if len(rest) > LINE_BYTES:
                    yield rest
                    rest = b""
            if rest:
                yield rest

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "",
    ) -> bytes:
        retried_login = False
        waits = 0
        while True:
            headers = await self.credentials.headers()
            if body is not None:
                headers["Content-Type"] = content_type
            if accept:
                headers["Accept"] = accept
            sent = None if body is None else json.dumps(body).encode()
            with self._explained():
                async with (
                    asyncio.timeout(self._whole_s),
                    self._request(method, path, params, sent, headers, self._timeout_s) as response,
                ):
                    if response.is_success:
                        return await bounded_body.body(response, self._limit_bytes)
                    content = await bounded_body.beginning(response)
            status = response.status_code
            if status == 401 and self.credentials.can_change and not retried_login:
                retried_login = True
                self.credentials.forget()
                continue
            wait_s = retry_after_s(method, status, response.headers.get("retry-after", ""))
            if wait_s is None or waits == WAITS:
                raise refusal(self.credentials, method, path, status, content)
            waits += 1
            await asyncio.sleep(min(wait_s, LONGEST_WAIT_S) * random.uniform(1.0, 1.25))

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        content: bytes | None,
        headers: Mapping[str, str],
        read_s: float | None,
    ) -> AsyncIterator[bounded_body.Response]:
        """Send a request; the response is open within the context."""
        from cockpit.sources.http import client

        self.requests += 1
        where = self.credentials
        tls = await where.tls()
        origin = client.origin(where.server, tls=tls, server_name=where.server_name)
        if origin is not None and not where.proxy:
            if self._direct is None:
                self._direct = client.Client(HEADERS)
            async with self._direct.stream(
                origin,
                method,
                where.server.rstrip("/") + path,
                params=params,
                content=content,
                headers=headers,
                connect_s=CONNECT_TIMEOUT_S,
                read_s=read_s,
                check_peer=None,
            ) as response:
                yield response
            return
        async with (
            self._pool() as http,
            http.stream(
                method,
                path,
                params=params,
                content=content,
                headers=dict(headers),
                timeout=(CONNECT_TIMEOUT_S, read_s, self._timeout_s, self._timeout_s),
                extensions={"sni_hostname": where.server_name} if where.server_name else {},
            ) as answer,
        ):
            yield answer

    @asynccontextmanager
    async def _pool(self) -> AsyncIterator[httpx.AsyncClient]:
        """Return the current client.

        A replaced one is closed after its last request: a renewed credential must not end running
        watches.
        """
        http = await self._open()
        self._busy[http] += 1
        try:
            yield http
        finally:
            self._busy[http] -= 1
            if self._busy[http] <= 0:
                del self._busy[http]
                if http is not self._http:
                    await http.aclose()

    async def _open(self) -> httpx.AsyncClient:
        """The one pool; a new one when the client's certificate has been renewed."""
        import httpx

        from cockpit.sources.http import client

        self._opening = self._opening or asyncio.Lock()
        async with self._opening:
            tls = await self.credentials.tls()
            if self._http is None or tls is not self._tls:
                old, self._http, self._tls = self._http, None, tls
                if old is not None and not self._busy[old]:
                    await old.aclose()
                try:
                    transport = httpx.AsyncHTTPTransport(
                        verify=tls or True,
                        proxy=self.credentials.proxy or None,
                        limits=httpx.Limits(max_connections=100, max_keepalive_connections=10),
                        socket_options=client.KEEPALIVE,
                    )
                    self._http = httpx.AsyncClient(
                        base_url=self.credentials.server,
                        transport=transport,
                        headers=HEADERS,
                    )
                except httpx.InvalidURL as error:
                    raise UsageError(
                        "The API server's address is not a valid URL.",
                        one_line(without_credentials(f"{self.credentials.server}: {error}")),
                        "Fix `server` or `proxy-url` in the kubeconfig.",
                    ) from error
                except (ImportError, ValueError) as error:
                    proxy = urlsplit(self.credentials.proxy)
                    raise UnreachableError(
                        f"The proxy {proxy.scheme}://{proxy.hostname} cannot be used.",
                        one_line(without_credentials(str(error))),
                        "Fix `proxy-url` in the kubeconfig, or the proxy variables.",
                    ) from error
            return self._http

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except failures.read_timeouts() as error:
            failure = unreachable(self.credentials, "it accepted the connection and sent nothing")
            raise NoDataError(failure.what, failure.why, failure.todo) from error
        except TimeoutError as error:
            raise unreachable(self.credentials, "the answer was not complete in time") from error
        except (bounded_body.AnswerTooLargeError, bounded_body.EncodingError) as error:
            raise unreachable(self.credentials, f"the answer is refused: {error}") from error
        except failures.unreachable() as error:
            raise unreachable(self.credentials, reason_of(error)) from error


def _decoded(path: str, body: bytes) -> Any:
    try:
        return loads(body)
    except ValueError as error:
        raise not_kubernetes(path, str(error)) from error
