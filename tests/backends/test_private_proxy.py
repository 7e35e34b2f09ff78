"""The private web server of `cockpit open`: who gets in, and what is passed on."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from msgspec.structs import replace

from cockpit.backends.private_proxy import PrivateProxy
from cockpit.model.cluster import DashboardRoute
from cockpit.model.error import CockpitError, UnreachableError

TOKEN = "very-secret-token"
PAGE = b"<a href='./static/x.js'>dashboard</a>"


class Upstream(ThreadingHTTPServer):
    """Notes each request, and answers with a page, or with what it got for a POST."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Upstream

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.command, self.path, headers))
        body = self.rfile.read(int(headers.get("content-length", 0))) or PAGE
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "session=theirs; Path=/")
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def route_to(upstream: Upstream) -> DashboardRoute:
    return DashboardRoute(upstream.url + "/base", {"X-Ray-Authorization": f"Bearer {TOKEN}"})


def test_nothing_is_passed_on_without_the_link(upstream: Upstream) -> None:
    with PrivateProxy(lambda: route_to(upstream)).running() as proxy:
        base = f"http://127.0.0.1:{proxy.port}"
        for path in ("/", "/?key=", "/?key=guess", "/api/jobs/"):
            assert httpx.get(base + path).status_code == 403
        wrong = {"Cookie": f"{proxy.cookie}=guess; {proxy.cookie[:-1]}=x"}
        assert httpx.get(base, headers=wrong).status_code == 403
        elsewhere = {"Host": "rebound.example"}
        assert httpx.get(proxy.link, headers=elsewhere).status_code == 403
    assert upstream.asked == []


def test_link_becomes_a_cookie_and_credentials_are_added_on_the_way(upstream: Upstream) -> None:
    with (
        PrivateProxy(lambda: route_to(upstream)).running() as proxy,
        httpx.Client(timeout=60) as browser,
    ):
        first = browser.get(proxy.link)
        assert (first.status_code, first.headers["Location"]) == (303, "/")
        assert "HttpOnly; SameSite=Strict" in first.headers["Set-Cookie"]
        base = f"http://127.0.0.1:{proxy.port}"
        sent = {"Origin": base, "Authorization": "Bearer theirs", "Accept-Language": "de"}
        page = browser.get(f"{base}/nodes?view=all", headers=sent)
        assert (page.status_code, page.content) == (200, PAGE)
        assert TOKEN not in str(page.headers)
        browser.get(f"{base}/missing")
    (method, path, headers), (_, _, later) = upstream.asked
    assert (method, path) == ("GET", "/base/nodes?view=all")
    assert headers["x-ray-authorization"] == f"Bearer {TOKEN}"
    assert headers["accept-language"] == "de"
    assert headers["host"] == upstream.url.removeprefix("http://")
    assert not {"authorization", "origin", "cookie"} & set(headers)
    assert later["cookie"] == "session=theirs", "the page's own cookies are kept"


def test_host_and_origin_are_kept_for_servers_that_compare_them(upstream: Upstream) -> None:
    route = DashboardRoute(upstream.url)
    with (
        PrivateProxy(lambda: route, keep_host=True).running() as proxy,
        httpx.Client(timeout=60) as browser,
    ):
        browser.get(proxy.link)
        base = f"http://127.0.0.1:{proxy.port}"
        answer = browser.post(f"{base}/api", content=b"posted", headers={"Origin": base})
        assert answer.content == b"posted"
    [(_, _, headers)] = upstream.asked
    assert headers["host"] == base.removeprefix("http://")
    assert headers["origin"] == base


def test_read_only_mode_passes_only_requests_that_read(upstream: Upstream) -> None:
    route = DashboardRoute(upstream.url)
    with (
        PrivateProxy(lambda: route, read_only=True).running() as proxy,
        httpx.Client(timeout=60) as browser,
    ):
        browser.get(proxy.link)
        base = f"http://127.0.0.1:{proxy.port}"
        assert browser.post(f"{base}/api/jobs/").status_code == 403
        assert browser.delete(f"{base}/api/jobs/1").status_code == 403
        assert browser.post(f"{base}/api/2.0/mlflow/runs/search").status_code == 200
        assert browser.get(f"{base}/").status_code == 200
    assert [method for method, _, _ in upstream.asked] == ["POST", "GET"]


@pytest.mark.parametrize(
    "path",
    [
        "/worker/traceback?pid=1",
        "/worker/cpu_profile?pid=1",
        "/worker/gpu_profile",
        "/task/traceback",
        "/memory_profile",
        "/worker/%74raceback",
        "/worker%2Ftraceback",
        "//worker//traceback/",
    ],
)
def test_read_only_mode_refuses_reads_that_pause_a_process(upstream: Upstream, path: str) -> None:
    for read_only, status in ((True, 403), (False, 200)):
        with (
            PrivateProxy(lambda: route_to(upstream), read_only=read_only).running() as proxy,
            httpx.Client(timeout=60) as browser,
        ):
            browser.get(proxy.link)
            assert browser.get(f"http://127.0.0.1:{proxy.port}{path}").status_code == status
    assert len(upstream.asked) == 1


def answered(proxy: PrivateProxy, path: str, headers: dict[str, str], method: str = "GET") -> int:
    """The status of a request as a browser with the cookie sends it, with its path unchanged."""
    key = proxy.link.rpartition("=")[2]
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port)
    try:
        connection.request(method, path, headers={"Cookie": f"{proxy.cookie}={key}", **headers})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/../secrets/x", "/a/%2e%2E/x", "/..%2F..%2Fx", "/%252e%252e/x"])
def test_path_that_leaves_the_route_is_refused(upstream: Upstream, path: str) -> None:
    """Behind the API server's proxy, it would be another object, with the user's credentials."""
    with PrivateProxy(lambda: route_to(upstream)).running() as proxy:
        assert answered(proxy, path, {}) == 400
        assert answered(proxy, "/a..b/c..", {}) == 200
    assert [path for _, path, _ in upstream.asked] == ["/base/a..b/c.."]


def test_request_of_a_page_of_another_port_is_refused(upstream: Upstream) -> None:
    """Its browser sends the cookie too: cookies and SameSite do not distinguish ports."""
    with PrivateProxy(lambda: route_to(upstream)).running() as proxy:
        own = f"http://127.0.0.1:{proxy.port}"
        for origin in ("http://127.0.0.1:9", "https://other.example", "null"):
            assert answered(proxy, "/api/jobs/", {"Origin": origin}, "POST") == 403
        for site in ("same-site", "cross-site"):
            fetched = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
            assert answered(proxy, "/nodes", fetched) == 403
        assert upstream.asked == []
        followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        assert answered(proxy, "/nodes", followed) == 200
        assert answered(proxy, "/api/jobs/", {"Origin": own}, "POST") == 200
        fetched = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
        assert answered(proxy, "/nodes", fetched) == 200


def test_error_of_the_client_is_shown_without_the_credential(upstream: Upstream) -> None:
    """httpx quotes a header that it refuses."""
    route = DashboardRoute(upstream.url, {"X-Ray-Authorization": f"Bearer {TOKEN}\n"})
    with PrivateProxy(lambda: route).running() as proxy, httpx.Client(timeout=60) as browser:
        browser.get(proxy.link)
        page = browser.get(f"http://127.0.0.1:{proxy.port}/")
    assert page.status_code == 502
    assert "Illegal header value" in page.text
    assert TOKEN not in page.text
    assert upstream.asked == []


def test_server_that_is_gone_is_reported_on_the_page() -> None:
    def refused() -> DashboardRoute:
        raise UnreachableError("The head is not up.", todo="Wait for it.")

    for route, text in (
        (lambda: DashboardRoute("http://127.0.0.1:9"), "The server does not answer."),
        (refused, "The head is not up."),
    ):
        with PrivateProxy(route).running() as proxy, httpx.Client(timeout=60) as browser:
            browser.get(proxy.link)
            page = browser.get(f"http://127.0.0.1:{proxy.port}/")
            assert page.status_code == 502
            assert page.text.startswith(text)


def test_port_that_is_taken_is_an_error(upstream: Upstream) -> None:
    port = int(upstream.server_address[1])
    proxy = PrivateProxy(lambda: route_to(upstream), port=port)
    with pytest.raises(CockpitError, match=f"Port {port}"), proxy.running():
        pass


def test_server_of_another_user_gets_nothing(upstream: Upstream) -> None:
    """Its owner is checked once it is connected: it may have taken the port just before."""
    checked = list[int]()

    def check_peer() -> None:
        checked.append(len(upstream.asked))
        raise UnreachableError("Another user listens there.")

    route = replace(route_to(upstream), check_peer=check_peer)
    with PrivateProxy(lambda: route).running() as proxy, httpx.Client(timeout=60) as browser:
        assert browser.get(proxy.link).status_code == 303
        answer = browser.get(f"http://127.0.0.1:{proxy.port}/")
    assert (answer.status_code, "Another user listens there." in answer.text) == (502, True)
    assert checked == [0]
    assert upstream.asked == []
