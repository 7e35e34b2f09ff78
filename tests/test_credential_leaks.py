"""No client sends a credential that its library would quote, and no error shows one."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.pretty import pretty_repr

from cockpit.backends.address import AddressBackend
from cockpit.backends.kuberay.api.auth_plugin import Login
from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.error_message import refusal, unreachable
from cockpit.backends.kuberay.api.kubeconfig import KubeContext
from cockpit.backends.kuberay.api.websocket import open_websocket
from cockpit.backends.ray_token import ray_token
from cockpit.cli import main as cli
from cockpit.model.cluster import DashboardRoute
from cockpit.model.error import CockpitError, UsageError
from cockpit.sources.mlflow import settings as mlflow_settings
from cockpit.sources.mlflow.api import Mlflow
from cockpit.sources.mlflow.settings import MlflowSettings
from cockpit.sources.prometheus import settings as prometheus_settings
from cockpit.sources.prometheus.api import Prometheus
from cockpit.sources.prometheus.settings import PrometheusSettings
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import Http
from tests.sources.raw_server import RawServer, http

SECRET = "s3same-0pen"
BROKEN = [
    f"{SECRET}\nX-Evil: 1",
    f"{SECRET}\r",
    f"{SECRET}\x00{SECRET}",
    f"{SECRET}\x1b[2J",
    "é" + SECRET,
]


def error_of(work: Callable[[], object]) -> CockpitError:
    with pytest.raises(CockpitError) as raised:
        work()
    return raised.value


def assert_not_shown(error: BaseException) -> None:
    """Neither in the error nor in its cause, which --debug prints."""
    seen: BaseException | None = error
    while seen is not None:
        assert SECRET not in f"{seen}{seen!r}{getattr(seen, 'why', '')}"
        seen = seen.__cause__ or seen.__context__


@pytest.mark.parametrize(
    "holder",
    [
        DashboardRoute(
            "http://head", {"Authorization": f"Bearer {SECRET}"}, proxy=f"http://{SECRET}@p"
        ),
        KubeContext("here", "ml", "https://server", "u", {"proxy-url": SECRET}, {"token": SECRET}),
        Login(token=SECRET, key=SECRET),
        MlflowSettings("http://mlflow", headers={"Authorization": SECRET}),
    ],
    ids=lambda holder: type(holder).__name__,
)
def test_object_with_a_secret_does_not_show_it_in_a_log_or_traceback(holder: object) -> None:
    assert type(holder).__name__ in repr(holder)
    assert SECRET not in f"{holder!r}{holder}{pretty_repr(holder)}"


def kube(server: str = "http://127.0.0.1:9", **user: Any) -> Credentials:
    return Credentials(KubeContext("here", "default", server, "u", {}, user))


@pytest.mark.parametrize("token", BROKEN[:1] + BROKEN[2:])
def test_ray_token_with_a_control_character_is_refused_without_quoting_it(
    token: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable in ("COCKPIT_RAY_TOKEN", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    path = tmp_path / "token"
    path.write_text(token)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path))
    error = error_of(ray_token)
    assert_not_shown(error)
    assert str(path) in error.what
    if "\x00" not in token:
        monkeypatch.setenv("COCKPIT_RAY_TOKEN", token)
        error = error_of(ray_token)
        assert_not_shown(error)
        assert "COCKPIT_RAY_TOKEN" in error.what


def test_ray_token_that_is_not_text_is_refused_without_quoting_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("COCKPIT_RAY_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    path = tmp_path / "token"
    path.write_bytes(SECRET.encode() + b"\xff")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path))
    error = error_of(ray_token)
    assert SECRET not in str(error)


@pytest.mark.parametrize("token", BROKEN[:1] + BROKEN[2:])
@pytest.mark.parametrize("header", ["Authorization", "X-Ray-Authorization"])
async def test_dashboard_client_sends_no_header_that_http_would_quote(
    token: str, header: str
) -> None:
    route = DashboardRoute("http://127.0.0.1:9", {header: f"Bearer {token}"})
    async with Http(route) as client:
        with pytest.raises(UsageError) as raised:
            await client.ask("GET", "/nodes")
        assert_not_shown(raised.value)
        with pytest.raises(UsageError) as raised:
            async with client.stream("/log", params={}, idle_s=1.0):
                pass
        assert_not_shown(raised.value)


@pytest.mark.parametrize("token", BROKEN[:1] + BROKEN[2:])
async def test_kubernetes_client_and_websocket_send_no_header_that_would_be_quoted(
    token: str, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text(token, newline="")
    async with RawServer(lambda head: http(500, b"{}")).serve() as server:
        for credentials in (
            kube(server.url, token=token), kube(server.url, tokenFile=str(path))
        ):  # fmt: skip
            client = KubeClient(credentials)
            with pytest.raises(UsageError) as raised:
                await client.get("/version")
            assert_not_shown(raised.value)
            with pytest.raises(UsageError) as raised:
                await open_websocket(client, "/api", (), ("v5.channel.k8s.io",))
            assert_not_shown(raised.value)
            await client.aclose()


async def test_kubernetes_tokens_are_stripped(tmp_path: Path) -> None:
    assert (await kube(token=f" {SECRET}\n").headers()) == {"Authorization": f"Bearer {SECRET}"}


@pytest.mark.parametrize("token", BROKEN[:1] + BROKEN[2:])
def test_settings_with_a_broken_credential_are_refused_without_quoting_it(
    token: str, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text(token)
    by_file = {"token_file": str(path)}
    headers = json.dumps({"X-Api-Key": token})
    for work in (
        lambda: mlflow_settings.parse({"uri": "http://h", **by_file}, {}),
        lambda: mlflow_settings.parse({"uri": "http://h"}, {"MLFLOW_TRACKING_TOKEN": token}),
        lambda: prometheus_settings.parse({"url": "http://h", **by_file}, {}),
        lambda: prometheus_settings.parse({"url": "http://h", "headers": {"X-Key": token}}, {}),
        lambda: prometheus_settings.parse(
            {}, {"RAY_PROMETHEUS_HOST": "http://h", "RAY_PROMETHEUS_HEADERS": headers}
        ),
    ):
        error = error_of(work)
        assert isinstance(error, UsageError)
        assert_not_shown(error)


def test_mlflows_token_variable_is_stripped() -> None:
    said = mlflow_settings.parse({"uri": "http://h"}, {"MLFLOW_TRACKING_TOKEN": f"{SECRET}\n"})
    assert said.token == SECRET


ECHO = f"bad request: Authorization: Bearer {SECRET}, key={SECRET}"


@pytest.mark.parametrize("status", [200, 400, 401, 500])
async def test_an_answer_that_repeats_the_credential_is_shown_without_it(status: int) -> None:
    answer = {"error": ECHO, "message": ECHO}
    body = ECHO.encode() if status == 200 else json.dumps(answer).encode()
    async with RawServer(lambda head: http(status, body)).serve() as server:
        headers = {"Authorization": f"Bearer {SECRET}"}
        async with Dashboard(DashboardRoute(server.url, headers)) as dashboard:
            with pytest.raises(CockpitError) as raised:
                await dashboard.nodes()
        assert_not_shown(raised.value)
        mlflow = Mlflow(MlflowSettings(server.url, token=SECRET))
        with pytest.raises(CockpitError) as raised:
            await mlflow.experiments()
        await mlflow.aclose()
        assert_not_shown(raised.value)
        with pytest.raises(CockpitError) as raised:
            await Prometheus(PrometheusSettings(server.url, headers={"X-Key": SECRET})).now_s()
        assert_not_shown(raised.value)


async def test_an_api_servers_refusal_and_a_librarys_error_are_shown_without_the_credential() -> (
    None
):
    credentials = kube(token=SECRET)
    body = json.dumps({"message": ECHO, "reason": "BadRequest"}).encode()
    for status in (400, 401, 403, 500):
        assert_not_shown(refusal(credentials, "GET", "/api", status, body))
    assert_not_shown(unreachable(credentials, f"Illegal header value b'Bearer {SECRET}'"))
    assert_not_shown(unreachable(credentials, f"proxy http://me:{SECRET}@proxy:3128 refused"))


async def test_a_password_in_a_dashboards_address_goes_into_a_header_and_no_error() -> None:
    backend = AddressBackend(f"http://me:{SECRET}@127.0.0.1:9/ray/", token=lambda: "rays")
    route = await backend.dashboard()
    pair = base64.b64encode(f"me:{SECRET}".encode()).decode()
    assert route.base_url == "http://127.0.0.1:9/ray"
    assert route.headers == {"Authorization": f"Basic {pair}", "X-Ray-Authorization": "Bearer rays"}
    async with Dashboard(route) as dashboard:
        with pytest.raises(CockpitError) as raised:
            await dashboard.nodes()
    assert_not_shown(raised.value)
    assert_not_shown(error_of(lambda: AddressBackend(f"ftp://me:{SECRET}@head")))


def test_configuration_is_shown_without_the_password_of_an_address(
    capsys: pytest.CaptureFixture[str],
) -> None:
    address = f"http://me:{SECRET}@head:8265"
    for form in ("table", "json"):
        assert cli.main(["config", "show", "--address", address, "-o", form]) == 0
        said = capsys.readouterr().out
        assert SECRET not in said
        assert "@head:8265" in said
