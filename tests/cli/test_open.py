"""`cockpit open`: which link is printed, and what is refused before a route is made."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from cockpit.backends.kuberay.service_route import ServiceName
from cockpit.cli.main import main
from cockpit.cli.read.open import FRESH_S, kept, needs_no_proxy, service_name
from cockpit.config import file
from cockpit.model.cluster import DashboardRoute
from cockpit.model.error import UsageError
from tests.backends.test_private_proxy import PAGE, Upstream, upstream

__all__ = ["upstream"]


@pytest.mark.parametrize(
    ("given", "page", "expected"),
    [
        ("", "grafana", ServiceName("monitoring", "grafana")),
        ("", "mlflow", ServiceName("ml", "mlflow")),
        ("tracking/mlflow-web:8080", "mlflow", ServiceName("tracking", "mlflow-web", 8080)),
        ("web", "grafana", ServiceName("ml", "web")),
    ],
)
def test_service_is_the_named_one_or_that_of_the_manifests(
    given: str, page: str, expected: ServiceName
) -> None:
    assert service_name(given, page, "ml") == expected


@pytest.mark.parametrize("given", ["a/b:", "a/", ":80", "a:web"])
def test_broken_service_name_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="is not a Service"):
        service_name(given, "grafana", "ml")


def test_configured_address_is_printed_without_a_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://user:secret@mlflow.test/")
    assert main(["open", "mlflow"]) == 0
    assert capsys.readouterr().out == "https://mlflow.test\n"
    file.path().parent.mkdir(parents=True, exist_ok=True)
    file.path().write_text('[grafana]\nurl = "https://grafana.test/"\n')
    assert main(["open", "grafana"]) == 0
    assert capsys.readouterr().out == "https://grafana.test\n"
    file.path().write_text('[grafana]\naddress = "x"\n')
    assert main(["open", "grafana"]) == 2
    assert "there is no 'address'" in capsys.readouterr().err


def test_dashboard_by_its_address_needs_no_route(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("COCKPIT_RAY_TOKEN", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # without ~/.ray/auth_token
    assert main(["open", "dashboard", "--address", "http://127.0.0.1:9"]) == 0
    assert capsys.readouterr().out == "http://127.0.0.1:9\n"
    assert main(["open", "grafana", "--address", "http://127.0.0.1:9"]) == 2
    assert "[grafana] url" in capsys.readouterr().err
    assert main(["open", "dashboard", "--service", "x"]) == 2
    assert main(["open", "dashboard", "--port", "70000"]) == 2


def test_dashboard_with_a_token_is_served_until_ctrl_c(upstream: Upstream) -> None:
    argv = [sys.executable, "-m", "cockpit", "open", "dashboard", "--address", upstream.url]
    environment = {**os.environ, "COCKPIT_RAY_TOKEN": "very-secret-token"}
    with subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        link = process.stdout.readline().strip()
        with httpx.Client(timeout=60) as browser:
            assert browser.get(link).status_code == 303
            page = browser.get(f"http://127.0.0.1:{urlsplit(link).port}/")
            assert page.content == PAGE
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert "Press Ctrl-C to close it" in err
    assert "very-secret-token" not in err + link
    # The session reads the dashboard too, by other paths.
    [headers] = [sent for _, path, sent in upstream.asked if path == "/"]
    assert headers["authorization"] == "Bearer very-secret-token"


def test_credentials_and_tunnels_need_the_private_proxy() -> None:
    plain = DashboardRoute("http://head:8265")
    assert needs_no_proxy(plain)
    for route in (
        DashboardRoute("http://head:8265", {"Authorization": "Bearer x"}),
        DashboardRoute("http://pod:8265", socket_path="/run/s"),
        DashboardRoute("https://api", tls=ssl.create_default_context()),
        DashboardRoute("http://head:8265", proxy="socks5://bastion"),
    ):
        assert not needs_no_proxy(route)


def test_route_is_checked_again_after_a_while() -> None:
    now_s, calls = [0.0], []

    def ask() -> int:
        calls.append(now_s[0])
        return len(calls)

    current = kept(ask, lambda: now_s[0])
    assert (current(), current()) == (1, 1)
    now_s[0] = FRESH_S + 1
    assert current() == 2
