"""To which run an MLflow run belongs, and invalid responses."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError, UsageError
from cockpit.model.event import SourceHealth
from cockpit.model.tracking import RunRef, TrackedRun
from cockpit.sources.mlflow.api import Found, Mlflow
from cockpit.sources.mlflow.settings import MlflowSettings, parse
from cockpit.sources.mlflow.source import MlflowSource, belongs
from cockpit.sources.ray.http import AnswerError
from tests.sources.raw_server import RawServer, http

TOKEN = "very-secret-token"
EMPTY = b'{"experiments": [{"experiment_id": "0", "name": "Default"}]}'


async def failure(server: RawServer, **limits: float) -> CockpitError:
    """The error of one poll of its experiments and runs."""
    settings = MlflowSettings(server.url, token=TOKEN)
    client = Mlflow(settings, **limits)
    try:
        with pytest.raises(CockpitError) as raised:
            await client.runs(await client.experiments(), 0.0)
    finally:
        await client.aclose()
    assert TOKEN not in f"{raised.value!r}{raised.value}{settings!r}"
    return raised.value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Sign in</html>",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"experiments": 7}',
        b'{"experiments": [7]}',
        b'{"experiments": [{}]}',
        EMPTY[:-2] + b', "runs": [7]}',
        EMPTY[:-1] + b', "runs": [{"info": {}}]}',
        EMPTY[:-1]
        + b', "runs": [{"info": {"run_id": "1", "experiment_id": "0"},'
        + b' "data": {"metrics": [{"key": "a", "value": "much"}]}}]}',
    ],
)
async def test_garbage_is_called_what_it_is(body: bytes) -> None:
    async with RawServer(lambda _: http(200, body)).serve() as server:
        error = await failure(server)
    assert isinstance(error, AnswerError)
    assert "did not answer as an MLflow tracking server does" in error.what


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (401, b"You are not authenticated.", NotAllowedError, "wants credentials"),
        (403, b"Invalid Host header\x1b[31m", NotAllowedError, "Invalid Host header"),
        (404, b"<html>no</html>", AnswerError, "HTTP 404"),
        (500, b'{"error_code": "X", "message": "database is locked"}', AnswerError, "is locked"),
        (503, b"", UnreachableError, "is not ready"),
        (302, b"", AnswerError, "sends elsewhere"),
    ],
)
async def test_an_error_status_becomes_a_sentence(
    status: int, body: bytes, kind: type[CockpitError], words: str
) -> None:
    async with RawServer(lambda _: http(status, body)).serve() as server:
        error = await failure(server)
    assert isinstance(error, kind)
    assert words in str(error)
    assert "\x1b" not in str(error)
    assert "<" not in str(error)


async def test_a_huge_answer_is_not_read_to_its_end() -> None:
    async with RawServer(lambda _: http(200, b" " * (4 << 20))).serve() as server:
        error = await failure(server, limit_bytes=1 << 20)
    assert "too large" in error.what


@pytest.mark.timed
@pytest.mark.parametrize("trickling", [False, True])
async def test_a_slow_server_is_given_up_after_a_time_in_all(trickling: bool) -> None:
    server = RawServer(
        lambda _: http(200, b" " * 10_000), chunk_bytes=64, pause_s=0.05, hang=not trickling
    )
    async with server.serve():
        begun_s = time.monotonic()
        error = await failure(server, timeout_s=0.4)
    assert isinstance(error, UnreachableError)
    assert "no complete answer within 0.4 s" in error.why
    assert time.monotonic() - begun_s < 6.0


async def test_a_server_that_pages_without_end_is_asked_for_a_few_pages() -> None:
    body = EMPTY[:-1] + b', "next_page_token": "more"}'
    async with RawServer(lambda _: http(200, body)).serve() as server:
        client = Mlflow(MlflowSettings(server.url))
        assert await client.experiments() == {"0": "Default"}
        assert len(server.asked) == 5
        await client.aclose()


async def test_credentials_go_along() -> None:
    ways = [
        (MlflowSettings("", token=TOKEN, username="a"), f"authorization: bearer {TOKEN}"),
        (MlflowSettings("", username="a", password="b"), "authorization: basic ytpi"),
    ]
    for settings, header in ways:
        async with RawServer(lambda _: http(200, b"{}")).serve() as server:
            client = Mlflow(replace(settings, url=server.url))
            assert await client.experiments() == {}
            assert header in server.asked[0].lower()
            await client.aclose()


async def test_failures_are_waited_out_and_its_health_reports_when_it_is_tried_again() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with RawServer(lambda _: http(500, b"boom")).serve() as server:
        source = MlflowSource(MlflowSettings(server.url), clock=lambda: 1000.0, sleep=sleep)
        async with aclosing(source.events()) as events:
            reported = [await anext(events) for _ in range(4)]
    for event, wait_s in zip(reported, slept, strict=False):
        assert isinstance(event, SourceHealth)
        assert not event.ok
        assert "boom" in event.error
        assert event.retry_at_s == 1000.0 + wait_s
    assert slept[2] > slept[0]


async def test_without_an_address_it_is_absent_and_reports_what_to_set() -> None:
    for settings, text in (
        (parse({}, {}), "MLFLOW_TRACKING_URI"),
        (parse({"uri": "sqlite:///x.db"}, {}), "sqlite is not"),
        (parse({}, {"MLFLOW_TRACKING_URI": "databricks"}), "databricks is not"),
    ):
        async with aclosing(MlflowSource(settings).events()) as events:
            reported = await anext(events)
        assert isinstance(reported, SourceHealth)
        assert (reported.ok, reported.absent) == (True, True)
        assert text in reported.error


def found(
    name: str = "", started_s: float | None = 100.0, tags: Mapping[str, str] | None = None
) -> Found:
    return Found(TrackedRun("1", name, "e", "RUNNING", started_s), tags or {})


FIRST = RunRef("a", "digits", 100.0, 200.0, submission_id="raysubmit_1")
SECOND = RunRef("b", "digits", 220.0, None, submission_id="raysubmit_1")


@pytest.mark.parametrize(
    ("tracked", "whose"),
    [
        (found(tags={"ray_train_run_id": "b"}), "b"),
        (found(tags={"ray.train.run_id": "a"}), "a"),
        (found(tags={"cockpit.run": "a", "cockpit.submission": "raysubmit_2"}), "a"),
        (found(tags={"cockpit.run": "gone"}), None),
        (found("digits", 150.0), "a"),
        (found("digits", 205.0), "b"),
        (found("digits", 230.0), "b"),
        (found("digits", 99.0), "a"),
        (found("digits", -1000.0), None),
        (found("digits", None), None),
        (found("letters", 150.0), None),
        (found("", 150.0), None),
        (found("x", 230.0, {"cockpit.submission": "raysubmit_1"}), "b"),
        (found("x", 150.0, {"cockpit.submission": "raysubmit_1"}), "a"),
    ],
)
def test_run_belongs_to_its_tag_or_to_the_run_of_its_name_at_that_time(
    tracked: Found, whose: str | None
) -> None:
    assert belongs(tracked, [FIRST, SECOND]) == whose
    assert belongs(tracked, [SECOND, FIRST]) == whose


def test_unknown_boolean_of_mlflow_is_an_error_of_usage() -> None:
    with pytest.raises(UsageError, match="MLFLOW_TRACKING_INSECURE_TLS is 'maybe'"):
        parse({}, {"MLFLOW_TRACKING_URI": "https://m", "MLFLOW_TRACKING_INSECURE_TLS": "maybe"})
    verified = {"MLFLOW_TRACKING_URI": "https://m", "MLFLOW_TRACKING_INSECURE_TLS": "0"}
    assert parse({}, verified).verify


def test_settings_come_from_the_configuration_then_from_mlflows_own_variables() -> None:
    own = {
        "MLFLOW_TRACKING_URI": "http://anna:x@there:5000/",
        "MLFLOW_TRACKING_TOKEN": TOKEN,
        "MLFLOW_TRACKING_INSECURE_TLS": "true",
    }
    settings = parse({}, own)
    assert settings == MlflowSettings(
        "http://there:5000",
        token=TOKEN,
        username="anna",
        password="x",
        verify=False,
        set_by="environment",
    )
    assert TOKEN not in repr(settings)
    text = parse({"uri": "https://m/base", "verify": True, "experiments": ["a"]}, own)
    assert (text.url, text.verify, text.experiments, text.set_by) == (
        "https://m/base",
        True,
        ("a",),
        "configuration",
    )


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"url": "http://m"}, "there is no 'url'"),
        ({"uri": 7}, "uri is not a text"),
        ({"experiments": "a"}, "experiments is not a list"),
        ({"experiments": [1]}, "experiments are not texts"),
        ({"uri": "http://"}, "the address is not one"),
        ({"uri": "http://m", "token_env": "UNSET"}, "a variable that is not set"),
    ],
)
def test_settings_that_are_wrong_are_refused_in_a_sentence(
    table: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        parse(table, {})


async def test_a_certificate_that_is_not_there_is_reported_by_its_name(tmp_path: Path) -> None:
    settings = MlflowSettings("https://127.0.0.1:1", ca_file=str(tmp_path / "ca.pem"))
    with pytest.raises(UnreachableError, match="cannot be asked") as raised:
        await Mlflow(settings).experiments()
    assert "ca.pem" in raised.value.why
