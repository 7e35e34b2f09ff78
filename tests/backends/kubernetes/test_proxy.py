from __future__ import annotations

import pytest

from cockpit.backends.kuberay.api.proxy import proxy_for

SERVER = "https://api.example.com:6443"


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, ""),
        ({"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ({"https_proxy": "p:3128"}, "http://p:3128"),
        ({"HTTP_PROXY": "http://p:3128"}, ""),
        ({"ALL_PROXY": "socks5://p:1080"}, "socks5://p:1080"),
    ],
)
def test_the_environment_names_the_proxy(environment: dict[str, str], proxy: str) -> None:
    assert proxy_for(SERVER, environment) == proxy


@pytest.mark.parametrize(
    ("server", "excepted", "straight"),
    [
        (SERVER, "*", True),
        (SERVER, "example.com", True),
        (SERVER, ".example.com", True),
        (SERVER, "*.example.com", True),
        (SERVER, "other.org, EXAMPLE.com", True),
        (SERVER, "ample.com", False),
        (SERVER, "api.example.com:6443", True),
        (SERVER, "api.example.com:443", False),
        (SERVER, "", False),
        ("https://example.com", ".example.com", False),
        ("https://10.1.2.3:6443", "10.0.0.0/8", True),
        ("https://10.1.2.3:6443", "10.1.2.3", True),
        ("https://10.1.2.3:6443", "10.1.2.3:443", False),
        ("https://10.1.2.3:6443", "192.168.0.0/16", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://127.0.0.1:6443", "", True),
        ("https://localhost:6443", "", True),
    ],
)
def test_no_proxy_is_read_as_kubectl_reads_it(server: str, excepted: str, straight: bool) -> None:
    environment = {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": excepted}
    assert proxy_for(server, environment) == ("" if straight else "http://p:3128")
