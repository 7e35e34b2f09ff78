"""Prometheus's address and credentials: `[prometheus]` of the configuration, or Ray's variables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cockpit.model.error import UsageError
from cockpit.model.secret import sendable
from cockpit.sources.server_settings import Table

HOST_VARIABLE, HEADERS_VARIABLE = "RAY_PROMETHEUS_HOST", "RAY_PROMETHEUS_HEADERS"
"""Ray's dashboard takes them too (ray/dashboard/modules/metrics/metrics_head.py)."""
NOWHERE = f"no Prometheus is configured: [prometheus] url, or {HOST_VARIABLE}"

_KEYS = {
    "url": str,
    "token_file": str,
    "token_env": str,
    "username": str,
    "password_file": str,
    "password_env": str,
    "headers": dict,
    "ca_file": str,
    "cert_file": str,
    "key_file": str,
    "verify": bool,
    "selector": str,
}


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """`repr` leaves out what is secret."""

    url: str
    """Without a trailing slash, user or password; empty when none is configured."""
    token: str = field(default="", repr=False)
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True
    selector: str = ""
    """Label matchers that every query is narrowed by: `cluster="prod"`."""
    set_by: str = ""
    """`configuration`, `environment` or `dashboard`."""
    why_not: str = ""
    """With an empty url: the reason, if it is not just that none is configured."""


def parse(raw: Mapping[str, Any], environ: Mapping[str, str]) -> PrometheusSettings:
    """Read the settings.

    `raw` is `[prometheus]`, which may be empty; so may `url` in the result. Raises UsageError for
    invalid values, and for a file or variable that does not exist.
    """
    table = Table("prometheus", raw, _KEYS, environ)
    set_by = "configuration"
    url, headers = table.text("url"), table.texts_by_name("headers")
    if not url and (url := environ.get(HOST_VARIABLE, "")):
        set_by = "environment"
        headers = {**_ray_headers(environ.get(HEADERS_VARIABLE, "")), **headers}
    headers = {
        name: sendable(value, f"the header {name} for [prometheus]")
        for name, value in headers.items()
    }
    address = table.address(url, "http://prometheus.example:9090")
    selector = table.text("selector").strip().removeprefix("{").removesuffix("}").strip(" ,")
    if selector and "=" not in selector:
        raise table.wrong("selector is not label matchers", 'it looks like cluster="prod"')
    return PrometheusSettings(
        url=address.url,
        token=table.secret("token"),
        username=table.text("username") or address.username,
        password=table.secret("password") or address.password,
        headers=headers,
        ca_file=table.path("ca_file"),
        cert_file=table.path("cert_file"),
        key_file=table.path("key_file"),
        verify=table.flag("verify", True),
        selector=selector,
        set_by=set_by if address.url else "",
    )


def _ray_headers(text: str) -> dict[str, str]:
    """An object of texts, or a list of pairs: as Ray takes it."""
    if not text:
        return {}
    try:
        return {str(name): str(value) for name, value in dict(json.loads(text)).items()}
    except (ValueError, TypeError) as error:
        # Its text is not shown: it holds tokens.
        raise UsageError(
            f"{HEADERS_VARIABLE} is not understood.", "It is an object in JSON, with texts."
        ) from error
