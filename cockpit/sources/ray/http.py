"""HTTP to the Ray dashboard: one connection pool, and every failure as one of our errors.

`cockpit.sources.http.client` sends the requests; httpx does where it is needed: through a proxy,
with the system's certificates, and in tests with a transport. Each is imported for the first
request: httpx costs 50 ms.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from msgspec import Struct

from cockpit.model.clock import server_time
from cockpit.model.cluster import DashboardRoute
from cockpit.model.decoding.limited_json import MAX_BYTES, LimitError, loads
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError, reason_of
from cockpit.model.secret import sendable, without_credentials
from cockpit.model.text import one_line
from cockpit.sources.http import bounded_body, failures
from cockpit.sources.http.extensions import async_extensions

if TYPE_CHECKING:
    import httpx

    from cockpit.sources.http import client
else:
    # httpx's own command line brings rich, click and pygments: over a third of its import time,
    # which every short verb would pay. It is optional there, and this makes it absent.
    sys.modules.setdefault("httpx._main", None)

RouteOf = Callable[[], Awaitable[DashboardRoute]]

TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5.0
HEADERS = {"Accept-Encoding": bounded_body.ACCEPT_ENCODING}
WHOLE_ANSWER_S = 60.0
"""Timeout of a complete response, or twice its timeout between two bytes if that is longer: a
server that sends a byte a second would block forever."""


class _Way(Struct, frozen=True):
    """The key of a connection pool; httpx handles the host."""

    environment: bool
    secure: bool
    tls: ssl.SSLContext | None
    socket_path: str
    proxy: str


class _Request(Struct, frozen=True):
    method: str
    path: str
    read_s: float | None
    """Timeout between two parts of the response; None: no timeout."""
    params: Mapping[str, str] | None = None
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    """Besides those of the route."""


class AnswerError(CockpitError):
    """The dashboard responded with an error. `status` is HTTP's, `body` its complete text."""

    def __init__(
        self, what: str, why: str = "", todo: str = "", *, status: int, body: str = ""
    ) -> None:
        super().__init__(what, why, todo)
        self.status = status
        self.body = body


class MissingError(AnswerError):
    """Not found: 404, or Ray's message with status 500 for a missing log."""


class NoDataError(UnreachableError):
    """Connected, but no data arrived within the timeout."""


class Http:
    """Requests by path to the dashboard at `route`.

    The route is resolved before the first request and again after each failure to connect, so that
    a moved head is found. Bound to the event loop of the first request.
    """

    def __init__(
        self,
        route: DashboardRoute | RouteOf,
        *,
        timeout_s: float = TIMEOUT_S,
        whole_s: float = WHOLE_ANSWER_S,
        limit_bytes: int = MAX_BYTES,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._whole_s, self._limit_bytes = whole_s, limit_bytes
        self._route_of = _always(route) if isinstance(route, DashboardRoute) else route
        self._timeout_s = timeout_s
        self._transport = transport
        self._route: DashboardRoute | None = None
        self._clients: dict[_Way, httpx.AsyncClient] = {}
        self._direct: client.Client | None = None

    async def aclose(self) -> None:
        if self._direct is not None:
            await self._direct.aclose()
        while self._clients:
            await self._clients.popitem()[1].aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        timeout_s: float | None = None,
    ) -> Any:
        """The decoded answer. Raises AnswerError when it is not JSON, too large or too deep."""
        answer = await self.fetch(
            method,
            path,
            params=params,
            body=None if body is None else json.dumps(body).encode(),
            headers={} if body is None else {"Content-Type": "application/json"},
            timeout_s=timeout_s,
        )
        try:
            return loads(answer, max_bytes=self._limit_bytes)
        except LimitError as error:
            raise _implausible(self._route, path, str(error)) from error
        except ValueError as error:
            base = self._route.base_url if self._route else ""
            sent = self._route.headers.values() if self._route else ()
            text = without_credentials(answer[:1000].decode(errors="replace"), sent)
            raise AnswerError(
                f"{base}{path} did not answer as a Ray dashboard does",
                one_line(text) or "the answer is empty",
                "check that the address is a Ray dashboard's",
                status=200,
            ) from error

    async def fetch(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        """The answer's body. Raises AnswerError when it is larger than the limit."""
        route = await self._ask_route()
        timeout_s = timeout_s or self._timeout_s
        request = _Request(method, path, timeout_s, params, body, headers or {})
        whole_s = max(self._whole_s, 2 * timeout_s)
        try:
            return await self._fetch(route, request, whole_s)
        except NotAllowedError as error:
            refusal = error  # beyond this block, so that it is not the reason of a later error
        # What was refused was not executed, so that a change may be sent again too.
        route = await self._renewed_route(route, refusal)
        return await self._fetch(route, request, whole_s)

    async def _fetch(self, route: DashboardRoute, request: _Request, whole_s: float) -> bytes:
        began_s = time.monotonic()
        with self._explained(route, request.path):
            async with asyncio.timeout(whole_s), self._open(route, request) as response:
                date = response.headers.get("date", "")
                server_time.correct(date, time.monotonic() - began_s)
                await _check_success(route, request, response)
                return await bounded_body.body(response, self._limit_bytes)

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], idle_s: float | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the response body as it arrives; `idle_s` without a byte raises NoDataError.

        Ray sends the headers of a followed log only with its first bytes, so that waiting for them
        counts as idle too.
        """
        route, request = await self._ask_route(), _Request("GET", path, idle_s, params)
        refusal: NotAllowedError | None = None
        async with AsyncExitStack() as stack:
            try:
                response = await self._begin(stack, route, request)
            except NotAllowedError as error:
                refusal = error
            if refusal is not None:
                await stack.aclose()
                route = await self._renewed_route(route, refusal)
                response = await self._begin(stack, route, request)
            yield self._chunks(route, path, response)

    async def _begin(
        self, stack: AsyncExitStack, route: DashboardRoute, request: _Request
    ) -> bounded_body.Response:
        """The response of a stream, which is open until the stack is closed."""
        with self._explained(route, request.path):
            response = await stack.enter_async_context(self._open(route, request))
            await _check_success(route, request, response)
            return response

    async def _chunks(
        self, route: DashboardRoute, path: str, response: bounded_body.Response
    ) -> AsyncIterator[bytes]:
        with self._explained(route, path):
            async for chunk in bounded_body.pieces(response):
                yield chunk

    async def _ask_route(self) -> DashboardRoute:
        if self._route is None:
            self._route = await self._route_of()
        return self._route

    async def _renewed_route(
        self, refused: DashboardRoute, error: NotAllowedError
    ) -> DashboardRoute:
        """The route after a refusal: a token may have expired. Raises `error` if it is the same."""
        route = await self._ask_route()
        if (route.headers, route.tls) == (refused.headers, refused.tls):
            raise error
        return route

    def _open(
        self, route: DashboardRoute, request: _Request
    ) -> AbstractAsyncContextManager[bounded_body.Response]:
        """Send a request; the response is open within the context."""
        from cockpit.sources.http import client

        connect_s, read_s = min(CONNECT_TIMEOUT_S, self._timeout_s), request.read_s
        url, headers = route.base_url + request.path, {**request.headers, **_checked(route)}
        if (origin := self._origin(route)) is not None:
            if self._direct is None:
                self._direct = client.Client(HEADERS)
            return self._direct.stream(
                origin,
                request.method,
                url,
                params=request.params,
                content=request.body,
                headers=headers,
                connect_s=connect_s,
                read_s=read_s,
                check_peer=route.check_peer,
            )
        return self._client(route).stream(
            request.method,
            url,
            params=request.params,
            content=request.body,
            headers=headers,
            extensions=async_extensions(route),
            timeout=(connect_s, read_s, read_s, self._timeout_s),
        )

    def _origin(self, route: DashboardRoute) -> client.Origin | None:
        """The dashboard's, if it is reached without httpx."""
        from cockpit.sources.http import client

        if self._transport is not None or route.proxy:
            return None
        if _uses_environment(route) and client.has_proxy():
            return None
        return client.origin(
            route.base_url,
            tls=route.tls,
            socket_path=route.socket_path,
            server_name=route.server_name,
        )

    def _client(self, route: DashboardRoute) -> httpx.AsyncClient:
        import httpx

        from cockpit.sources.http import client

        secure = urlsplit(route.base_url).scheme == "https"
        environment = _uses_environment(route)
        way = _Way(environment, secure, route.tls, route.socket_path, route.proxy)
        found = self._clients.get(way)
        if found is None:
            # Certificates are loaded (20 ms) only when needed.
            verify = (route.tls or True) if secure else False
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=10)
            transport = self._transport
            if route.socket_path and transport is None:
                transport = httpx.AsyncHTTPTransport(
                    uds=route.socket_path, verify=verify, limits=limits
                )
            found = self._clients[way] = httpx.AsyncClient(
                trust_env=environment,
                verify=verify,
                proxy=route.proxy or None,
                transport=transport,
                limits=limits,
                headers=HEADERS,
            )
            client.close_with_loop(found)  # several sources share it, and none of them ends it
        return found

    @contextmanager
    def _explained(self, route: DashboardRoute, path: str) -> Iterator[None]:
        """Convert the client's errors; after any of them the route is resolved again."""
        where = f"the Ray dashboard at {route.base_url}"
        try:
            yield
        except failures.read_timeouts() as error:
            self._route = None
            raise NoDataError(
                f"{where} does not answer", "it accepted the connection and sent nothing"
            ) from error
        except (bounded_body.AnswerTooLargeError, bounded_body.EncodingError) as error:
            raise _implausible(route, path, str(error)) from error
        except TimeoutError as error:
            self._route = None
            raise NoDataError(
                f"{where} does not answer", "the answer was not complete in time"
            ) from error
        except failures.unreachable() as error:
            self._route = None
            why = one_line(without_credentials(reason_of(error), route.headers.values()))
            raise UnreachableError(
                f"{where} cannot be reached", why, "Check the address, and that the head is up"
            ) from error
        except (UnreachableError, NotAllowedError):
            self._route = None  # a renewed token or a moved head has a new route
            raise


class DashboardClient:
    """Typed calls over `Http`. Belongs to the event loop of its first call."""

    def __init__(
        self,
        route: DashboardRoute | RouteOf,
        *,
        timeout_s: float = TIMEOUT_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = Http(route, timeout_s=timeout_s, transport=transport)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


def _implausible(route: DashboardRoute | None, path: str, why: str) -> AnswerError:
    return AnswerError(
        f"{route.base_url if route else ''}{path} did not answer as a Ray dashboard does",
        f"the answer is refused: {why}",
        "check that the address is a Ray dashboard's",
        status=200,
    )


def _always(route: DashboardRoute) -> RouteOf:
    async def same() -> DashboardRoute:
        return route

    return same


def _checked(route: DashboardRoute) -> dict[str, str]:
    """The route's headers. Raises UsageError for a value that no header can have."""
    where = f"the header {{}} for the Ray dashboard at {route.base_url}"
    return {name: sendable(value, where.format(name)) for name, value in route.headers.items()}


def _uses_environment(route: DashboardRoute) -> bool:
    """Whether the proxies of the environment apply: a bastion usually has HTTP_PROXY set, and a
    loopback address must not be sent to the proxy.
    """
    host = urlsplit(route.base_url).hostname or ""
    return not (route.socket_path or _is_loopback(host))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_KUBERNETES = re.compile(r'"kind":\s*"Status"')


async def _check_success(
    route: DashboardRoute, request: _Request, response: bounded_body.Response
) -> None:
    """Raises the error that an answer describes."""
    if not response.is_success:
        text = (await bounded_body.beginning(response)).decode(errors="replace")
        raise _refused(route, request.path, response.status_code, text)


def _refused(route: DashboardRoute, path: str, status: int, body: str) -> CockpitError:
    """The error for an answer that is not a success."""
    # Ray responds with a traceback, whose last line is the error.
    lines = [line for line in body.splitlines() if line.strip()]
    text = one_line(without_credentials(lines[-1], route.headers.values())) if lines else ""
    why = f"HTTP {status}" + (f": {text}" if text else "")
    where = f"the Ray dashboard at {route.base_url}"
    if status == 401:
        todo = (
            "give the cluster's token: it is in RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH of its head"
        )
        return NotAllowedError(f"{where} requires a token", why, todo)
    if status == 403:
        todo = "check that the token is this cluster's"
        return NotAllowedError(f"{where} refused the token", why, todo)
    # The API server's answer about a Service that is deleted with its cluster is no answer of Ray.
    if status in (429, 502, 503, 504) or (status == 404 and _KUBERNETES.search(body)):
        return UnreachableError(f"{where} is not ready", why, "it is tried again")
    if status == 404 or (status == 500 and ("not found" in body or "doesn't exist" in body)):
        return MissingError(f"{where} has no {path}", why, status=status, body=body)
    return AnswerError(f"{where} failed on {path}", why, status=status, body=body)
