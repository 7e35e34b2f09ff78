"""`cockpit open`: which link is printed, and what is refused before a route is made."""

from __future__ import annotations

import ssl

import pytest

from cockpit.backends.kuberay.service_route import ServiceName
from cockpit.cli.main import main
from cockpit.cli.read.open import FRESH_S, kept, needs_no_proxy, service_name
from cockpit.config import file
from cockpit.model.cluster import DashboardRoute
from cockpit.model.error import UsageError


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
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COCKPIT_RAY_TOKEN", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert main(["open", "dashboard", "--address", "http://127.0.0.1:9"]) == 0
    assert capsys.readouterr().out == "http://127.0.0.1:9\n"
    assert main(["open", "grafana", "--address", "http://127.0.0.1:9"]) == 2
    assert "[grafana] url" in capsys.readouterr().err
    assert main(["open", "dashboard", "--service", "x"]) == 2
    assert main(["open", "dashboard", "--port", "70000"]) == 2


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
