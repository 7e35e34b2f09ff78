"""With any response, the source continues and reports the error in a sentence."""

from __future__ import annotations

import asyncio
import gzip
import math
import time
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from cockpit.model.cluster import DashboardRoute
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError, UsageError
from cockpit.model.event import PastAlertsLoaded, SourceHealth
from cockpit.model.tracking import RunRef
from cockpit.sources.prometheus.api import Curve, Prometheus
from cockpit.sources.prometheus.discovery import finder
from cockpit.sources.prometheus.settings import PrometheusSettings, parse
from cockpit.sources.prometheus.source import PrometheusSource
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import AnswerError
from tests.sources.raw_server import RawServer, http

FINE = b'{"status":"success","data":{"resultType":"vector","result":%b}}'
TIME = FINE % b'[{"metric":{},"value":[1.0,"1700000000"]}]'
TOKEN = "very-secret-token"


async def failure(server: RawServer, **limits: float) -> CockpitError:
    """The error of one query."""
    settings = PrometheusSettings(server.url, token=TOKEN)
    client = Prometheus(settings, **limits)
    with pytest.raises(CockpitError) as raised:
        await client.now_s()
    assert TOKEN not in f"{raised.value!r}{raised.value}{settings!r}"
    return raised.value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Sign in</html>",
        b"[]",
        b"null",
        b"\xff\xfe\x00",
        b'{"status":"success"}',
        b'{"data":{"result":7}}',
        FINE % b"[7]",
        FINE % b'[{"metric":{}}]',
        FINE % b'[{"metric":[],"value":[1,"2"]}]',
        FINE % b'[{"metric":{},"value":[1,"two"]}]',
        FINE % b'[{"metric":{},"value":"12345"}]',
        TIME[:-4],
    ],
)
async def test_garbage_is_called_what_it_is(body: bytes) -> None:
    async with RawServer(lambda _: http(200, body)).serve() as server:
        error = await failure(server)
    assert isinstance(error, AnswerError)
    assert "did not answer as a Prometheus does" in error.what


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, NotAllowedError, "wants credentials"),
        (403, NotAllowedError, "refused the credentials"),
        (404, AnswerError, "HTTP 404"),
        (422, AnswerError, "too many samples"),
        (429, UnreachableError, "is not ready"),
        (500, AnswerError, "HTTP 500"),
        (503, UnreachableError, "is not ready"),
        (204, AnswerError, "did not answer as a Prometheus does"),
    ],
)
async def test_an_error_status_becomes_a_sentence(
    status: int, kind: type[CockpitError], words: str
) -> None:
    body = b'{"status":"error","error":"too many samples\\u001b[31m"}' if status == 422 else b"no"
    async with RawServer(lambda _: http(status, body if status != 204 else b"")).serve() as server:
        error = await failure(server)
    assert isinstance(error, kind)
    assert words in str(error)
    assert "\x1b" not in str(error)


async def test_a_redirect_is_not_followed_so_that_no_key_goes_along() -> None:
    async with RawServer(lambda _: http(200, TIME)).serve() as other:
        away = f"Location: {other.url}/login?next={TOKEN}"
        async with RawServer(lambda _: http(302, b"", away)).serve() as server:
            error = await failure(server)
        assert f"to {other.url}/login" in error.why
        assert not other.asked


async def test_a_huge_answer_is_not_read_to_its_end() -> None:
    body = FINE % (b"[" + b" " * (4 << 20) + b"]")
    async with RawServer(lambda _: http(200, body)).serve() as server:
        error = await failure(server, limit_bytes=1 << 20)
    assert "too large" in error.what
    assert error.why == "more than 1 MiB"


async def test_a_huge_page_of_an_error_is_not_read_to_its_end_either() -> None:
    async with RawServer(lambda _: http(500, b"x" * (4 << 20))).serve() as server:
        assert "HTTP 500" in (await failure(server)).why


@pytest.mark.timed
@pytest.mark.parametrize("trickling", [False, True])
async def test_a_slow_server_is_given_up_after_a_time_in_all(trickling: bool) -> None:
    body = FINE % (b"[" + b" " * 10_000 + b"]")
    server = RawServer(lambda _: http(200, body), chunk_bytes=64, pause_s=0.05, hang=not trickling)
    async with server.serve():
        begun_s = time.monotonic()
        error = await failure(server, timeout_s=0.4)
    assert isinstance(error, UnreachableError)
    assert "does not answer" in error.what
    assert time.monotonic() - begun_s < 6.0


async def test_an_answer_that_is_cut_or_stops_in_the_middle_is_a_server_that_fails() -> None:
    async with RawServer(lambda _: http(200, TIME)[:-10]).serve() as server:
        cut = await failure(server)
    assert isinstance(cut, UnreachableError | AnswerError)

    longer = http(200, TIME + b" " * 100)[:-100]
    async with RawServer(lambda _: longer, chunk_bytes=len(longer), pause_s=9.0).serve() as server:
        stopped = await failure(server, timeout_s=0.3)
    assert isinstance(stopped, UnreachableError)
    assert "no complete answer within 0.3 s" in stopped.why


async def test_an_answer_that_is_not_the_encoding_it_claims_is_garbage() -> None:
    zipped = http(200, TIME, "Content-Encoding: gzip")
    async with RawServer(lambda _: zipped).serve() as server:
        assert isinstance(await failure(server), AnswerError)


async def test_a_compressed_answer_in_chunks_is_read() -> None:
    body = gzip.compress(TIME)
    head = b"HTTP/1.1 200 X\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    async with RawServer(lambda _: head + chunks + b"0\r\n\r\n").serve() as server:
        assert await Prometheus(PrometheusSettings(server.url)).now_s() == 1700000000.0


async def test_waiting_for_a_server_that_hangs_ends_at_once_when_the_source_is_closed() -> None:
    async with RawServer(lambda _: b"", hang=True).serve() as server:
        source = PrometheusSource(PrometheusSettings(server.url))
        waiting = asyncio.create_task(anext(source.events()))
        await server.first.wait()
        begun_s = time.monotonic()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert time.monotonic() - begun_s < 9.0


async def test_the_loop_continues_while_a_question_is_asked() -> None:
    async with RawServer(lambda _: b"", hang=True).serve() as server:
        request = asyncio.create_task(failure(server, timeout_s=60))
        for _ in range(11):
            await asyncio.sleep(0.01)
            assert not request.done()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request


async def test_credentials_go_to_the_server_and_a_netrc_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(netrc))
    ways = [
        (PrometheusSettings("", token=TOKEN), f"authorization: bearer {TOKEN}"),
        (PrometheusSettings("", username="a", password="b"), "authorization: basic ytpi"),
        (PrometheusSettings("", headers={"X-Scope-OrgID": "ml"}), "x-scope-orgid: ml"),
    ]
    for settings, header in ways:
        async with RawServer(lambda _: http(200, TIME)).serve() as server:
            assert await Prometheus(replace(settings, url=server.url)).now_s() == 1700000000.0
            head = server.asked[0].lower()
        assert header in head
        assert head.count("authorization:") == ("authorization" in header)


async def test_numbers_that_are_none_are_kept() -> None:
    body = FINE % b'[{"metric":{"a":"b"},"value":[1.5,"NaN"]},{"metric":{},"value":[2,"+Inf"]}]'
    async with RawServer(lambda _: http(200, body)).serve() as server:
        nan, infinite = await Prometheus(PrometheusSettings(server.url)).instant("x")
    assert math.isnan(nan.values[0])
    assert (nan.labels, nan.times) == ({"a": "b"}, (1.5,))
    assert infinite.values == (math.inf,)


async def test_an_empty_answer_to_everything_is_a_server_without_anything_of_rays() -> None:
    async with RawServer(lambda _: http(200, FINE % b"[]")).serve() as server:
        source = PrometheusSource(PrometheusSettings(server.url))
        async with aclosing(source.events()) as events:
            reported = await anext(events)
    assert isinstance(reported, SourceHealth)
    assert (reported.ok, reported.absent) == (True, True)


@pytest.mark.parametrize("refused", [False, True])
async def test_past_alerts_are_asked_for_again_after_a_cut_and_not_after_a_refusal(
    refused: bool,
) -> None:
    asked: list[str] = []

    class Failing(Prometheus):
        async def now_s(self) -> float:
            return 1000.0

        async def instant(self, query: str) -> tuple[Curve, ...]:
            return ()

        async def range(self, query: str, *span: object) -> tuple[Curve, ...]:
            asked.append("alerts" if "ALERTS" in query else "history")
            if asked == ["alerts"]:
                raise AnswerError("too much", status=422) if refused else UnreachableError("cut")
            return (Curve({"alertname": "Hung"}, (500.0,), (1.0,)),) if "ALERTS" in query else ()

    async def runs() -> list[RunRef]:
        return [RunRef("a", "digits", started_s=100.0, ended_s=900.0)]

    now_s = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += 60.0
        await asyncio.sleep(0)

    source = PrometheusSource(
        PrometheusSettings("http://p"),
        runs,
        open_client=Failing,
        monotonic=lambda: now_s,
        sleep=sleep,
    )
    loaded: list[PastAlertsLoaded] = []
    async with asyncio.timeout(10), aclosing(source.events()) as events:
        async for event in events:
            if isinstance(event, PastAlertsLoaded):
                loaded.append(event)
            if asked.count("history") == 2:
                break
    assert asked.count("alerts") == (1 if refused else 2)
    assert len(loaded) == (0 if refused else 1)


def dashboard_of(server: RawServer) -> Dashboard:
    return Dashboard(DashboardRoute(server.url))


async def test_configured_address_is_used_without_a_request() -> None:
    async with RawServer(lambda _: http(500, b"")).serve() as ray, dashboard_of(ray) as dashboard:

        async def route() -> DashboardRoute:
            raise AssertionError("not needed")

        settings = PrometheusSettings("http://there:9090")
        assert await finder(settings, dashboard, route)() is settings
        assert not ray.asked


async def test_the_heads_own_prometheus_is_found_where_ray_reaches_one() -> None:
    async with (
        RawServer(lambda _: http(200, b'{"result": true, "msg": "", "data": {}}')).serve() as ray,
        RawServer(lambda _: http(200, TIME)).serve() as server,
        dashboard_of(ray) as dashboard,
    ):

        async def direct() -> DashboardRoute:
            return DashboardRoute(ray.url)

        async def through() -> DashboardRoute:
            return DashboardRoute(ray.url, via="port-forward")

        nowhere = PrometheusSettings("", token=TOKEN)
        find = finder(nowhere, dashboard, direct, port=server.port)
        found = await find()
        assert (found.url, found.set_by) == (server.url, "dashboard")
        assert await find() is found, "it is not guessed again"
        assert all(TOKEN not in head for head in server.asked), "a guess gets no credentials"

        unsaid = await finder(nowhere, dashboard, through, port=server.port)()
        assert not unsaid.url
        assert "does not report its address" in unsaid.why_not

        closed = server.port
    async with (
        RawServer(lambda _: http(200, b'{"data": {}}')).serve() as ray,
        dashboard_of(ray) as dashboard,
    ):

        async def again() -> DashboardRoute:
            return DashboardRoute(ray.url)

        assert not (await finder(nowhere, dashboard, again, port=closed)()).url


async def test_ray_that_reaches_none_leaves_it_at_that() -> None:
    async with RawServer(lambda _: http(500, b"failed")).serve() as ray, dashboard_of(ray) as asked:

        async def route() -> DashboardRoute:
            return DashboardRoute(ray.url)

        found = await finder(PrometheusSettings(""), asked, route)()
    assert (found.url, found.why_not) == ("", "")


async def test_a_dashboard_that_is_down_leaves_no_address_and_is_no_failure_of_prometheus() -> None:
    async with RawServer(lambda _: b"").serve() as removed:
        pass
    async with dashboard_of(removed) as dashboard:

        async def route() -> DashboardRoute:
            return DashboardRoute(removed.url)

        source = PrometheusSource(finder(PrometheusSettings(""), dashboard, route))
        async with aclosing(source.events()) as events:
            reported = await anext(events)
    assert isinstance(reported, SourceHealth)
    assert (reported.ok, reported.absent) == (True, True)
    assert "no Prometheus is configured" in reported.error
    assert "cannot be reached" in reported.error


def test_settings_come_from_the_configuration_then_from_rays_own_variables() -> None:
    ray = {"RAY_PROMETHEUS_HOST": "http://ray:9090/", "RAY_PROMETHEUS_HEADERS": '{"A": "b"}'}
    assert parse({}, {}) == PrometheusSettings("")
    assert parse({}, ray) == PrometheusSettings(
        "http://ray:9090", headers={"A": "b"}, set_by="environment"
    )
    assert parse({}, ray | {"RAY_PROMETHEUS_HEADERS": '[["A", "c"]]'}).headers == {"A": "c"}
    own = parse({"url": "prom.example:9090/sub/", "selector": '{cluster="a"}'}, ray)
    assert (own.url, own.headers, own.set_by) == (
        "http://prom.example:9090/sub",
        {},
        "configuration",
    )
    assert own.selector == 'cluster="a"'


def test_secrets_come_from_files_and_variables_or_the_url_and_are_not_in_its_repr(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    for table in (
        {"url": "http://p", "token_file": str(file)},
        {"url": "http://p", "token_env": "T"},
    ):
        settings = parse(table, {"T": TOKEN})
        assert settings.token == TOKEN
        assert TOKEN not in repr(settings)
    settings = parse({"url": f"https://anna:{TOKEN}%21@p:1/x"}, {})
    assert (settings.url, settings.username, settings.password) == (
        "https://p:1/x",
        "anna",
        TOKEN + "!",
    )
    assert TOKEN not in repr(settings)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"uri": "http://p"}, "there is no 'uri'"),
        ({"url": 7}, "url is not a text"),
        ({"verify": "no"}, "verify is not true or false"),
        ({"url": "ftp://p"}, "the address is not one"),
        ({"url": "http://p:port"}, "the address is not one"),
        ({"headers": {"A": 1}}, "headers are not texts"),
        ({"token_env": "UNSET"}, "token_env names a variable that is not set"),
        ({"token_file": "/nonexistent/x"}, "token_file cannot be read"),
        ({"selector": "cluster"}, "selector is not label matchers"),
    ],
)
def test_settings_that_are_wrong_are_refused_in_a_sentence(
    table: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        parse(table, {})


def test_headers_of_rays_that_are_wrong_are_refused_without_showing_them() -> None:
    with pytest.raises(UsageError) as raised:
        parse({}, {"RAY_PROMETHEUS_HOST": "http://p", "RAY_PROMETHEUS_HEADERS": TOKEN})
    assert TOKEN not in str(raised.value)
