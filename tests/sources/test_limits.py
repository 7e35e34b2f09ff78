"""Answers too large, too deep, too slow or wrongly compressed are errors that cost little."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache

import pytest

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import KubeContext
from cockpit.model.cluster import DashboardRoute
from cockpit.model.decoding.limited_json import MAX_BYTES
from cockpit.model.error import CockpitError
from cockpit.sources.mlflow.api import Mlflow
from cockpit.sources.mlflow.settings import MlflowSettings
from cockpit.sources.prometheus.api import Prometheus
from cockpit.sources.prometheus.settings import PrometheusSettings
from cockpit.sources.ray import answers
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import Http, NoDataError
from tests.sources.raw_server import RawServer, http

GZIP = "Content-Encoding: gzip"


@cache
def bomb() -> bytes:
    """Return 300 KB that decompress to 75 MB of JSON."""
    return gzip.compress(b"[" + b"[]," * (100 << 20 >> 2) + b"[]]", 9)


"""75 MiB of empty lists in 76 kB."""
DEEP = b"[" * 200_000 + b"]" * 200_000

Ask = Callable[[], Awaitable[object]]


def kube(url: str, whole_s: float = 60.0) -> KubeClient:
    context = KubeContext("c", "default", url, "u", {}, {})
    return KubeClient(Credentials(context), whole_s=whole_s)


@asynccontextmanager
async def asking(server: RawServer, client: str, whole_s: float = 60.0) -> AsyncIterator[Ask]:
    """One request of each kind of client to this server."""
    if client == "dashboard":
        route, timeout_s = DashboardRoute(server.url), min(whole_s / 2, 10.0)
        async with Http(route, timeout_s=timeout_s, whole_s=whole_s) as dashboard:
            yield lambda: dashboard.ask("GET", "/nodes")
    elif client == "kubernetes":
        kubernetes = kube(server.url, whole_s)
        yield lambda: kubernetes.get("/api/v1/pods")
        await kubernetes.aclose()
    elif client == "mlflow":
        mlflow = Mlflow(MlflowSettings(server.url), timeout_s=min(whole_s, 15.0))
        yield lambda: mlflow.server.ask("GET", "/experiments/search")
        await mlflow.aclose()
    else:
        prometheus = Prometheus(PrometheusSettings(server.url), timeout_s=min(whole_s, 10.0))
        yield prometheus.now_s


CLIENTS = ("dashboard", "kubernetes", "mlflow", "prometheus")


async def refused(answer: bytes, client: str) -> str:
    async with RawServer(lambda head: answer).serve() as server, asking(server, client) as ask:
        with pytest.raises(CockpitError) as raised:
            await ask()
    return str(raised.value)


@pytest.mark.parametrize("client", CLIENTS)
async def test_compressed_answer_is_counted_as_it_grows(client: str) -> None:
    answer = http(200, bomb(), GZIP)
    answering = RawServer(lambda head: answer)
    async with answering.serve() as server, asking(server, client) as ask:
        tracemalloc.start()
        with pytest.raises(CockpitError, match="MiB"):
            await ask()
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak_bytes < MAX_BYTES * 1.5


@pytest.mark.parametrize("client", CLIENTS)
async def test_large_error_is_read_in_part(client: str) -> None:
    answer = http(500, bomb(), GZIP)
    answering = RawServer(lambda head: answer)
    async with answering.serve() as server, asking(server, client) as ask:
        tracemalloc.start()
        with pytest.raises(CockpitError) as raised:
            await ask()
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak_bytes < MAX_BYTES
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "body",
    [
        DEEP,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"[" * 200_000,
        b"[" + b"[]," * 3_000_000 + b"1]",
    ],
    ids=["lists", "objects", "unclosed", "values"],
)
async def test_nested_or_crowded_answer_is_refused(body: bytes, client: str) -> None:
    assert "cockpit hit" not in await refused(http(200, body), client)


WRONGLY_COMPRESSED = {
    "not gzip": (b"no gzip", "gzip"),
    "damaged gzip": (gzip.compress(b"{}")[:-12] + b"x" * 12, "gzip"),
    "unknown encoding": (b"{}", "br"),
    "control character": (b"{}", "\x7f, gzip"),
}


@pytest.mark.parametrize(
    ("client", "answer"),
    [
        pytest.param(client, answer, id=f"{client}-{name}")
        for client in CLIENTS
        for name, answer in WRONGLY_COMPRESSED.items()
    ],
)
async def test_wrongly_compressed_answer_is_an_error(
    client: str, answer: tuple[bytes, str]
) -> None:
    body, encoding = answer
    await refused(http(200, body, f"Content-Encoding: {encoding}"), client)


@pytest.mark.timed
@pytest.mark.parametrize("client", CLIENTS)
async def test_answer_that_trickles_is_given_up(client: str) -> None:
    """No two bytes are as far apart as the time-out between them."""
    server = RawServer(lambda head: http(200, b"[" + b" " * 1000), chunk_bytes=1, pause_s=0.02)
    async with server.serve(), asking(server, client, whole_s=0.3) as ask:
        async with asyncio.timeout(5):
            with pytest.raises(CockpitError, match=r"in time|within"):
                await ask()


async def tail(server: RawServer, lines: int = 10) -> list[bytes]:
    found: list[bytes] = []
    async with (
        Dashboard(DashboardRoute(server.url)) as dashboard,
        dashboard.stream_log("n", "x.log", lines=lines, follow=False, torn=True) as batches,
    ):
        async for batch in batches:
            found += batch
    return found


async def test_last_lines_of_a_log_are_not_more_than_twice_what_was_requested() -> None:
    answer = http(200, gzip.compress(b"line\n" * 5_000_000, 9), GZIP)
    async with RawServer(lambda head: answer).serve() as server:
        assert await tail(server) == [b"line"] * 20
    async with RawServer(lambda head: http(200, b"a\n" * 10 + b"torn")).serve() as server:
        assert await tail(server) == [*[b"a"] * 10, b"torn"]


async def test_last_lines_of_a_log_that_trickle_are_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cockpit.sources.ray.dashboard.TAIL_S", 0.3)
    server = RawServer(lambda head: http(200, b"x" * 1000), chunk_bytes=1, pause_s=0.02)
    async with server.serve(), asyncio.timeout(5):
        with pytest.raises(NoDataError, match=r"did not come within 0\.3 s"):
            await tail(server)


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
async def test_compressed_answers_are_read(compress: Callable[[bytes], bytes]) -> None:
    name = "gzip" if compress is gzip.compress else "deflate"
    body = b'{"items": [%s]}' % b",".join(b'"%d"' % at for at in range(100_000))
    answer = http(200, compress(body), f"Content-Encoding: {name}")
    async with RawServer(lambda head: answer).serve() as server:
        for client in ("dashboard", "kubernetes", "mlflow"):
            async with asking(server, client) as ask:
                found = await ask()
                assert isinstance(found, dict)
                assert len(found["items"]) == 100_000
    assert all("accept-encoding: gzip\r\n" in head.lower() for head in server.asked)


async def test_stream_is_decompressed_in_pieces() -> None:
    text = b"x" * (64 << 20)
    answer = http(200, gzip.compress(text, 9), GZIP)
    async with RawServer(lambda head: answer).serve() as server:
        client = kube(server.url)
        async with client.stream("/log", {}, idle_s=5.0) as chunks:
            sizes = [len(chunk) async for chunk in chunks]
        await client.aclose()
        async with (
            Http(DashboardRoute(server.url)) as dashboard,
            dashboard.stream("/log", params={}, idle_s=5.0) as read,
        ):
            sizes += [len(chunk) async for chunk in read]
    assert sum(sizes) == 2 * len(text)
    assert max(sizes) <= 1 << 18


def test_message_and_metadata_of_a_job_are_bounded() -> None:
    """The user who submits a job chooses them, and every cockpit masks them at each poll."""
    lines = "".join(f"line {n}\n" for n in range(500_000))
    metadata = {f"key {n}": "x" * 100 for n in range(50_000)} | {"key 0": lines}
    found = answers.job({"status": "FAILED", "message": lines, "metadata": metadata})
    assert found.message.startswith("line 0\n")
    assert found.message.endswith("line 499999")
    assert len(found.message) <= answers.MESSAGE_CHARS + 10
    assert len(found.metadata) == answers.METADATA
    assert max(map(len, found.metadata.values())) <= answers.VALUE_CHARS + 10
