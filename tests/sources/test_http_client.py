"""The client of many small requests: its connections, and answers that HTTP does not allow."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from cockpit.model.cluster import DashboardRoute
from cockpit.model.error import NotAllowedError, UnreachableError
from cockpit.sources.http import client, messages
from cockpit.sources.ray.http import AnswerError, Http, NoDataError
from tests.cluster.certificates import Authority
from tests.sources.raw_server import RawServer, http

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Connections:
    """A server that keeps its connections: what it received on each, and how it answers."""

    def __init__(self, answer: Callable[[str], bytes] = lambda head: OK) -> None:
        self.answer = answer
        self.closes_after = 1_000
        """Requests on one connection."""
        self.received: list[list[str]] = []
        self.closed = asyncio.Event()
        self.address = ""

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine: list[str] = []
        self.received.append(mine)
        try:
            while len(mine) < self.closes_after:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                _, _, length = head.lower().partition("content-length: ")
                if length:
                    await reader.readexactly(int(length.splitlines()[0]))
                mine.append(head)
                writer.write(self.answer(head))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()
            self.closed.set()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Connections]:
        server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        try:
            yield self
        finally:
            server.close()


def route(base_url: str, check_peer: Callable[[], None] | None = None) -> DashboardRoute:
    return DashboardRoute(base_url, {"Authorization": "Bearer t"}, check_peer=check_peer)


async def test_connection_is_used_again() -> None:
    async with Connections().serve() as server, Http(route(server.address)) as http:
        for _ in range(3):
            assert await http.ask("GET", "/nodes", params={"view": "a b&c"}) == {}
        await http.ask("POST", "/jobs", body={"a": 1})
        await http.fetch("POST", "/jobs/x/stop")
    [heads] = server.received
    assert heads[0].startswith("GET /nodes?view=a+b%26c HTTP/1.1\r\n")
    assert "\r\nAuthorization: Bearer t\r\n" in heads[0]
    assert "\r\nContent-Length: 8\r\n" in heads[3]
    assert "\r\nContent-Length: 0\r\n" in heads[4]


async def test_connection_that_the_server_closed_is_replaced() -> None:
    server = Connections()
    server.closes_after = 1
    async with server.serve(), Http(route(server.address)) as http:
        for _ in range(3):
            server.closed.clear()
            await http.ask("GET", "/nodes")
            await server.closed.wait()
            await asyncio.sleep(0)  # the loop reads the end of the connection
    assert len(server.received) == 3


async def test_query_that_is_sent_as_a_kept_connection_ends_is_sent_again() -> None:
    """A change is not: the server may have made it."""

    def answer(head: str) -> bytes:
        if len(server.received[-1]) == 2:
            raise ConnectionResetError
        return OK

    server = Connections(answer)
    async with server.serve(), Http(route(server.address)) as http:
        for _ in range(2):
            await http.ask("GET", "/nodes", params={"a": "1"})
        assert [len(heads) for heads in server.received] == [2, 1]
        with pytest.raises(UnreachableError, match="closed the connection without"):
            await http.ask("POST", "/jobs", body={})
    assert [len(heads) for heads in server.received] == [2, 2]


async def test_clients_of_a_loop_share_connections_and_each_closes_those_it_used_last() -> None:
    async with Connections().serve() as server:
        first, second = Http(route(server.address)), Http(route(server.address))
        await first.ask("GET", "/nodes")
        await second.ask("GET", "/jobs")
        assert [len(heads) for heads in server.received] == [2]
        await first.aclose()
        await second.ask("GET", "/jobs")
        assert [len(heads) for heads in server.received] == [3]
        await second.aclose()
        await asyncio.wait_for(server.closed.wait(), 5.0)


async def test_all_connections_of_a_loop_are_closed_before_it_ends() -> None:
    async with Connections().serve() as server:
        await Http(route(server.address)).ask("GET", "/nodes")
        await client.close_all()
        await asyncio.wait_for(server.closed.wait(), 5.0)
    assert asyncio.get_running_loop() not in client._kept


async def test_connections_of_httpx_are_closed_with_those_of_their_loop() -> None:
    async with Connections().serve() as server:
        through_httpx = Http(route(server.address), transport=httpx.AsyncHTTPTransport())
        await through_httpx.ask("GET", "/nodes")
        assert not server.closed.is_set()
        await client.close_all()
        await asyncio.wait_for(server.closed.wait(), 5.0)
    assert asyncio.get_running_loop() not in client._pools


async def test_connection_whose_peer_was_not_checked_is_not_used_where_it_has_to_be() -> None:
    checks: list[None] = []
    async with Connections().serve() as server:
        checked = route(server.address, lambda: checks.append(None))
        async with Http(route(server.address)) as free, Http(checked) as http:
            await free.ask("GET", "/nodes")
            await http.ask("GET", "/nodes")
            await http.ask("GET", "/nodes")
            assert len(checks) == 1
    assert [len(heads) for heads in server.received] == [1, 2]


@pytest.mark.parametrize("proxied", [False, True], ids=["direct", "httpx"])
async def test_certificate_of_another_name_is_expected_if_the_route_has_it(
    tmp_path: Path, proxied: bool
) -> None:
    authority = Authority(tmp_path)
    own = authority.sign("server", hosts=["kubernetes.default"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(own.certificate, own.key)
    trusted = ssl.create_default_context(cafile=authority.certificate)
    transport = httpx.AsyncHTTPTransport(verify=trusted) if proxied else None
    async with RawServer(lambda _: http(200, b"{}"), tls=tls).serve() as server:
        named = DashboardRoute(server.url, tls=trusted, server_name="kubernetes.default")
        async with Http(named, transport=transport) as client:
            assert await client.ask("GET", "/nodes") == {}
        async with Http(DashboardRoute(server.url, tls=trusted), transport=transport) as client:
            with pytest.raises(UnreachableError):
                await client.ask("GET", "/nodes")


async def test_query_of_the_address_is_kept() -> None:
    async with Connections().serve() as server:
        direct = client.Client({})
        origin = client.origin(server.address, tls=None)
        assert origin is not None
        async with direct.stream(
            origin,
            "GET",
            f"{server.address}/apply?dryRun=All",
            params={"limit": "5"},
            content=None,
            headers={},
            connect_s=5.0,
            read_s=5.0,
            check_peer=None,
        ) as response:
            assert response.is_success
        await direct.aclose()
    assert server.received[0][0].startswith("GET /apply?dryRun=All&limit=5 HTTP/1.1\r\n")


async def test_connection_is_not_kept_longer_than_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connections().serve() as server, Http(route(server.address)) as http:
        await http.ask("GET", "/nodes")
        monkeypatch.setattr(client, "KEPT_S", 0.0)
        await http.ask("GET", "/nodes")
    assert [len(heads) for heads in server.received] == [1, 1]


async def test_abandoned_answer_closes_its_connection() -> None:
    longer = OK.replace(b"Length: 2", b"Length: 9")
    server = Connections(lambda head: longer if "/log" in head else OK)
    async with server.serve(), Http(route(server.address)) as http:
        async with http.stream("/log", params={}, idle_s=5.0) as chunks:
            async for _ in chunks:
                break
        await http.ask("GET", "/nodes")
        await server.closed.wait()
    assert [len(heads) for heads in server.received] == [1, 1]


async def test_peer_that_is_refused_receives_nothing() -> None:
    def refuse() -> None:
        raise NotAllowedError("It is another user's.")

    async with Connections().serve() as server, Http(route(server.address, refuse)) as http:
        for _ in range(2):
            with pytest.raises(NotAllowedError):
                await http.ask("GET", "/nodes")
        await server.closed.wait()
    assert server.received == [[], []]


async def test_token_is_not_sent_on_a_connection_to_another_host() -> None:
    async with Connections().serve() as first, Connections().serve() as second:
        routes = [route(first.address), DashboardRoute(second.address)]

        async def moved() -> DashboardRoute:
            return routes.pop(0)

        async with Http(moved) as http:
            await http.ask("GET", "/nodes")
            http._route = None  # as after a failure
            await http.ask("GET", "/nodes")
    assert len(first.received[0]) == 1
    assert "Authorization" not in second.received[0][0]


ANSWERS = {
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "cut in its head": b"HTTP/1.1 200 OK\r\nContent-",
    "cut in its body": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}",
    "cut in a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{}",
    "chunks of no size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "an endless head": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000,
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_broken_answer_is_one_error(answer: bytes) -> None:
    async with RawServer(lambda head: answer).serve() as server, Http(route(server.url)) as http:
        with pytest.raises(UnreachableError, match="cannot be reached") as raised:
            await http.ask("GET", "/nodes")
    assert "Bearer" not in str(raised.value)
    assert len(str(raised.value)) < 1000


async def test_connection_is_kept_after_chunks_and_not_after_more_than_was_asked_for() -> None:
    chunked = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\n{}\r\n0\r\nA: b\r\n\r\n"
    )
    answers = [chunked, OK, OK + OK, OK]
    server = Connections(lambda head: answers.pop(0))
    async with server.serve(), Http(route(server.address)) as http:
        for _ in range(4):
            assert await http.ask("GET", "/nodes") == {}
    assert [len(heads) for heads in server.received] == [3, 1]


async def test_endless_head_after_a_body_is_an_error() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    answer = chunked + b"x: y\r\n" * 100_000
    async with RawServer(lambda head: answer).serve() as server, Http(route(server.url)) as http:
        with pytest.raises(UnreachableError, match="head of more than 100 KiB"):
            await http.ask("GET", "/nodes")


@pytest.mark.parametrize("fields", [{"A": "b\r\nC: d"}, {"A ": "b"}, {"A": "ä"}, {"A": "b\0"}])
def test_header_that_cannot_be_sent_is_not_quoted(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"^a header of the request cannot be sent$"):
        messages.request("GET", "/nodes", fields, None)


@pytest.mark.parametrize(("method", "target"), [("G T", "/"), ("GET", "/a b"), ("GET", "/\r\n")])
def test_request_line_that_cannot_be_sent_is_an_error(method: str, target: str) -> None:
    with pytest.raises(ValueError, match="the method or the path"):
        messages.request(method, target, {}, None)


async def test_answer_until_the_end_of_the_connection_is_read() -> None:
    answer = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.0 200 OK\r\n\r\n[1]"
    async with RawServer(lambda head: answer).serve() as server, Http(route(server.url)) as http:
        assert await http.ask("GET", "/nodes") == [1]


async def test_redirect_is_an_error() -> None:
    answer = http(302, b"", "Location: http://127.0.0.1:1/")
    async with (
        RawServer(lambda head: answer).serve() as server,
        Http(route(server.url)) as dashboard,
    ):
        with pytest.raises(AnswerError, match="302"):
            await dashboard.ask("GET", "/nodes")
    assert len(server.asked) == 1


async def test_answer_that_does_not_come_is_given_up() -> None:
    async with (
        RawServer(lambda head: b"", hang=True).serve() as server,
        Http(route(server.url), timeout_s=0.2) as http,
    ):
        with pytest.raises(NoDataError, match="does not answer"):
            await http.ask("GET", "/nodes")


async def test_unix_socket_is_used_in_place_of_the_host(tmp_path: Path) -> None:
    served, path = Connections(), str(tmp_path / "forward")
    server = await asyncio.start_unix_server(served.accept, path)
    async with Http(DashboardRoute("http://head:8265", socket_path=path)) as http:
        assert await http.ask("GET", "/nodes") == {}
    server.close()
    assert "\r\nHost: head:8265\r\n" in served.received[0][0]


@pytest.mark.parametrize(
    ("url", "is_served"),
    [
        ("http://head:8265", True),
        ("http://[::1]:8265/prefix", True),
        ("https://head:8265", False),
        ("http://user:pass@head:8265", False),
        ("http://kopf-ä:8265", False),
        ("http://head:port", False),
        ("ftp://head", False),
        ("http://", False),
    ],
)
def test_other_addresses_are_left_to_httpx(url: str, is_served: bool) -> None:
    assert (client.origin(url, tls=None, socket_path="") is not None) is is_served


async def test_proxy_of_the_environment_is_used_for_a_remote_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only httpx sends requests through a proxy."""
    async with Connections().serve() as proxy:
        monkeypatch.setenv("http_proxy", proxy.address)
        async with Http(DashboardRoute("http://head.invalid:8265")) as http:
            assert await http.ask("GET", "/nodes") == {}
        async with Connections().serve() as own, Http(route(own.address)) as http:
            assert await http.ask("GET", "/nodes") == {}
    assert proxy.received[0][0].startswith("GET http://head.invalid:8265/nodes ")
    assert len(proxy.received) == 1
    assert len(own.received) == 1
