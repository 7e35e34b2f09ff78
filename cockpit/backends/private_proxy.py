"""A web server on loopback that passes requests on to one route, for the holder of its link only.

On a bastion everyone can connect to a port of 127.0.0.1. So the link contains a key, which becomes
a cookie of the browser, and nothing is passed on without it. The credentials of the route are added
here: the browser never gets them. Browsers send a cookie of 127.0.0.1 to all its ports, so requests
that a page of another port makes are refused.
"""

from __future__ import annotations

import hmac
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from cockpit.model.cluster import DashboardRoute
from cockpit.model.error import CockpitError
from cockpit.model.secret import without_credentials
from cockpit.model.text import one_line
from cockpit.sources.http.extensions import extensions
from cockpit.sources.server_settings import is_loopback

if TYPE_CHECKING:
    import httpx

HOST = "127.0.0.1"
ROUTE_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10.0
BODY_LIMIT_BYTES = 64 << 20
"""Of a request, such as an artifact that is uploaded."""
CHUNK_BYTES = 64 << 10
HOP_BY_HOP = frozenset(
    ["connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
     "transfer-encoding", "upgrade"]
)  # fmt: skip
"""Headers of one connection (RFC 9110, 7.6.1)."""
NOT_SENT = HOP_BY_HOP | {"authorization", "x-ray-authorization", "content-length", "host", "cookie"}
METHODS_THAT_READ = ("GET", "HEAD", "OPTIONS")
_PAUSES = re.compile(r"/+(?:(?:worker|task)/+\w+|memory_profile)/*")
"""Paths of Ray's dashboard that pause a process (`reporter_head.py` of Ray 2.60), though by GET."""
Route = Callable[[], DashboardRoute]


class PrivateProxy:
    """Listen while `running`; `link` is the URL with the key. `route` is called for each request.

    `keep_host`: send the browser's Host and Origin, as servers want it that compare the two.
    `read_only`: refuse requests that may change something or pause a process; searches (POST
    …/search) are allowed.
    """

    def __init__(
        self, route: Route, *, port: int = 0, keep_host: bool = False, read_only: bool = False
    ) -> None:
        self.route, self.keep_host, self.read_only = route, keep_host, read_only
        self._port, self._key = port, secrets.token_urlsafe(24)
        self._server: _Server | None = None

    @property
    def port(self) -> int:
        return int(self._server.server_address[1]) if self._server is not None else self._port

    @property
    def link(self) -> str:
        return f"http://{HOST}:{self.port}/?key={self._key}"

    @property
    def cookie(self) -> str:
        """Its name: cookies are shared by all ports of a host."""
        return f"cockpit-{self.port}"

    def is_key(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._key.encode())

    @contextmanager
    def running(self) -> Iterator[PrivateProxy]:
        """Raises CockpitError if the port is taken."""
        try:
            self._server = _Server((HOST, self._port), _Handler)
        except OSError as error:
            raise CockpitError(
                f"Port {self._port} of {HOST} cannot be used.",
                f"{error.strerror or error}.",
                "Choose another one with --port, or leave it out.",
            ) from error
        self._server.proxy = self
        thread = threading.Thread(
            target=self._server.serve_forever, name="cockpit-private-proxy", daemon=True
        )
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
            self._server = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a log that is followed in the browser would block the end
    proxy: PrivateProxy


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a line for each request would fill the terminal, and the first has the key."""

    def _answer(self) -> None:
        self.close_connection = True
        proxy = self.server.proxy
        if not self.path.startswith("/") or ".." in self._plain_path().split("/"):
            self._say(HTTPStatus.BAD_REQUEST, "This is no proxy for other addresses.")
        elif not self._is_ours(proxy):
            self._say(HTTPStatus.FORBIDDEN, "Open the link that cockpit open printed.")
        elif self._is_of_another_page():
            self._say(HTTPStatus.FORBIDDEN, "A page of another address has sent this request.")
        elif self.headers.get("Upgrade"):
            self._say(HTTPStatus.NOT_IMPLEMENTED, "WebSockets are not passed on.")
        elif proxy.read_only and not self._reads():
            self._say(HTTPStatus.FORBIDDEN, "Read-only mode is on: this would change something.")
        elif (length := self._length()) is None:
            self._say(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The request has no or a large body.")
        else:
            try:
                self._pass_on(proxy, self.rfile.read(length))
            except CockpitError as error:
                self._say(HTTPStatus.BAD_GATEWAY, str(error))

    def _is_ours(self, proxy: PrivateProxy) -> bool:
        """By the cookie, or by the key of the link, which a redirect then removes from the URL."""
        if self.headers.get("Host", "").partition(":")[0] not in (HOST, "localhost"):
            return False  # another site's name that resolves to loopback (DNS rebinding)
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(proxy.cookie)
        except CookieError:
            found = None
        return (found is not None and proxy.is_key(found.value)) or self._has_key(proxy)

    def _has_key(self, proxy: PrivateProxy) -> bool:
        return any(map(proxy.is_key, parse_qs(urlsplit(self.path).query).get("key", [])))

    def _is_of_another_page(self) -> bool:
        """Whether a page of another origin has sent it, other than by a link that was followed."""
        origin = self.headers.get("Origin", "")
        if origin:
            return origin != f"http://{self.headers.get('Host', '')}"
        site, mode = (self.headers.get(f"Sec-Fetch-{name}", "") for name in ("Site", "Mode"))
        return site in ("cross-site", "same-site") and mode != "navigate"

    def _plain_path(self) -> str:
        """The path without percent-encoding, as the server may read it."""
        path, before = self.path.partition("?")[0], ""
        while path != before:
            before, path = path, unquote(path)
        return path

    def _reads(self) -> bool:
        path = self._plain_path()
        if self.command in METHODS_THAT_READ:
            return _PAUSES.fullmatch(path) is None
        return self.command == "POST" and path.endswith("/search")

    def _length(self) -> int | None:
        """The body's bytes; None if that is not known before, or too many."""
        text = self.headers.get("Content-Length", "0")
        if self.headers.get("Transfer-Encoding") or not text.isascii() or not text.isdecimal():
            return None
        return int(text) if int(text) <= BODY_LIMIT_BYTES else None

    def _pass_on(self, proxy: PrivateProxy, body: bytes) -> None:
        import httpx

        if self._has_key(proxy):
            self.send_response(HTTPStatus.SEE_OTHER)
            self.send_header("Location", "/")
            key = parse_qs(urlsplit(self.path).query)["key"][0]
            self.send_header(
                "Set-Cookie", f"{proxy.cookie}={key}; HttpOnly; SameSite=Strict; Path=/"
            )
            self.send_header("Content-Length", "0")
            self.send_header("Connection", "close")
            self.end_headers()
            return
        route = proxy.route()
        began = False
        try:
            with (
                _client(route) as client,
                client.stream(
                    self.command,
                    route.base_url + self.path,
                    headers=self._sent(proxy) | route.headers,
                    content=body or None,
                    extensions=extensions(route),
                ) as response,
            ):
                began = True
                self._relay(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if not began:
                text = without_credentials(str(error), route.headers.values())
                why = one_line(text) or type(error).__name__
                raise CockpitError("The server does not answer.", why) from error
        except ConnectionError:
            pass  # the browser has closed the page

    def _sent(self, proxy: PrivateProxy) -> dict[str, str]:
        """The browser's headers, without those of this connection and without our cookie."""
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in NOT_SENT
            and (proxy.keep_host or name.lower() not in ("origin", "referer"))
        }
        pairs = [pair.strip() for pair in self.headers.get("Cookie", "").split(";")]
        kept = [pair for pair in pairs if pair and not pair.startswith(f"{proxy.cookie}=")]
        if kept:
            headers["Cookie"] = "; ".join(kept)
        if proxy.keep_host:
            headers["Host"] = self.headers["Host"]
        return headers

    def _relay(self, response: httpx.Response) -> None:
        self.send_response(response.status_code)
        for name, value in response.headers.multi_items():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        for chunk in response.iter_raw(CHUNK_BYTES):
            self.wfile.write(chunk)

    def _say(self, status: HTTPStatus, text: str) -> None:
        page = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page)


def _client(route: DashboardRoute) -> httpx.Client:
    import httpx

    verify = (route.tls or True) if route.base_url.startswith("https:") else False
    path = route.socket_path
    return httpx.Client(
        verify=verify,
        proxy=route.proxy or None,
        transport=httpx.HTTPTransport(uds=path, verify=verify) if path else None,
        trust_env=not path and not is_loopback(route.base_url),
        timeout=httpx.Timeout(ROUTE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        follow_redirects=False,
        headers={"Accept-Encoding": "identity"},  # unless the browser sends its own
    )
