"""The client of Lambda Cloud's API: its errors, its rate limits, and its key."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cockpit.backends.lambda_cloud.api import Api, ApiError, Pace, settings
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError, UsageError
from cockpit.sources.server_settings import ServerSettings
from tests.lambda_cloud import KEY, LambdaCloud, Refused
from tests.sources.raw_server import RawServer, http

BUSY = Refused(429, "global/too-many-requests", "Slow down.", Retry_After="0")


@pytest.fixture
async def api(lambda_cloud: LambdaCloud) -> Api:
    return Api(settings(""))


async def test_requests_are_repeated_after_429_and_server_errors(
    api: Api, lambda_cloud: LambdaCloud
) -> None:
    broken = Refused(500, "global/internal-error", "An internal server error occurred.")
    lambda_cloud.faults += [("GET instances", each) for each in (BUSY, broken, BUSY)]
    assert await api.instances() == ()
    assert lambda_cloud.asked == ["GET instances"] * 4
    lambda_cloud.faults += [("POST ssh-keys", BUSY)]
    assert (await api.add_ssh_key("a", "ssh-ed25519 AAAA")).name == "a"
    await api.aclose()


async def test_changes_are_not_repeated_after_a_server_error(
    api: Api, lambda_cloud: LambdaCloud
) -> None:
    lambda_cloud.faults += [("POST ssh-keys", Refused(500, "global/internal-error", "Oh."))]
    with pytest.raises(UnreachableError, match="failed on an SSH key"):
        await api.add_ssh_key("a", "ssh-ed25519 AAAA")
    assert lambda_cloud.asked == ["POST ssh-keys"]
    await api.aclose()


async def test_retry_after_and_the_rates_of_the_api_are_respected(
    lambda_cloud: LambdaCloud,
) -> None:
    api = Api(settings(""), Pace(request_s=0.2))
    lambda_cloud.faults += [("GET", Refused(429, "x", "y", Retry_After="1"))]
    began_s = time.monotonic()
    await api.instances()
    assert time.monotonic() - began_s >= 1.0
    await api.instances()
    assert time.monotonic() - began_s >= 1.2
    await api.aclose()


async def test_errors_have_the_code_the_message_and_no_key(
    api: Api, lambda_cloud: LambdaCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = f"Bearer {KEY} is\x1b[2J wrong, {KEY}"
    for status, kind in ((400, ApiError), (401, NotAllowedError), (403, NotAllowedError)):
        lambda_cloud.faults += [("GET", Refused(status, "global/x", echo))]
        with pytest.raises(kind) as raised:
            await api.instances()
        assert KEY not in str(raised.value)
        assert "\x1b" not in str(raised.value)
        assert f"{raised.value.why}".count("wrong") == 1
    await api.aclose()
    monkeypatch.setenv("LAMBDA_API_KEY", "another")
    wrong = Api(settings(""))
    with pytest.raises(NotAllowedError, match="wants credentials"):
        await wrong.offers()
    await wrong.aclose()


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"data": 3}', b"<html>", b'{"data": [{}]}'])
async def test_answer_of_another_server_is_an_error(body: bytes) -> None:
    async with RawServer(lambda head: http(200, body)).serve() as server:
        api = Api(ServerSettings(server.url, token=KEY), Pace(0.0, 0.0, 0.0))
        with pytest.raises(CockpitError, match="did not answer as Lambda Cloud's API does"):
            await api.instances()
        await api.aclose()


async def test_endless_answer_is_refused() -> None:
    huge = b'{"data": [' + b"1," * (3 << 20) + b"1]}"
    async with RawServer(lambda head: http(200, huge)).serve() as server:
        api = Api(ServerSettings(server.url, token=KEY), Pace(0.0, 0.0, 0.0))
        with pytest.raises(CockpitError, match="too large"):
            await api.instances()
        await api.aclose()


def test_key_is_read_from_a_private_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAMBDA_API_KEY", raising=False)
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    path.chmod(0o644)
    with pytest.raises(NotAllowedError, match="open to other users") as raised:
        settings(str(path))
    assert f"chmod 600 {path}" in raised.value.todo
    path.chmod(0o600)
    assert settings(str(path)).token == KEY
    assert KEY not in repr(settings(str(path)))
    monkeypatch.setenv("LAMBDA_API_KEY", "of-environment")
    assert settings(str(path)).token == "of-environment"


@pytest.mark.parametrize("key", [f"{KEY}\nX: 1", f"{KEY}\x1b[2J", "é" + KEY])
def test_key_that_cannot_be_sent_is_refused_without_quoting_it(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAMBDA_API_KEY", key)
    with pytest.raises(UsageError) as raised:
        settings("")
    assert KEY not in str(raised.value)
    monkeypatch.delenv("LAMBDA_API_KEY")
    with pytest.raises(UsageError, match="no API key"):
        settings("")


def test_key_is_sent_over_tls_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMBDA_API_KEY", KEY)
    monkeypatch.setenv("LAMBDA_API_URL", "http://cloud.example")
    with pytest.raises(UsageError, match="is not an address with https"):
        settings("")
