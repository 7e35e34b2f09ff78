"""Prometheus's address and credentials: `[prometheus]` of the configuration, or Ray's variables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cockpit.model.error import UsageError
from cockpit.model.secret import sendable
from cockpit.sources.server_settings import KEYS, ServerSettings, Table

HOST_VARIABLE, HEADERS_VARIABLE = "RAY_PROMETHEUS_HOST", "RAY_PROMETHEUS_HEADERS"
"""Ray's dashboard takes them too (ray/dashboard/modules/metrics/metrics_head.py)."""
NOWHERE = f"no Prometheus is configured: [prometheus] url, or {HOST_VARIABLE}"

_KEYS = {"url": str, "headers": dict, "key_file": str, "selector": str} | KEYS


@dataclass(frozen=True, slots=True)
class PrometheusSettings(ServerSettings):
    selector: str = ""
    """Label matchers that every query is narrowed by: `cluster="prod"`."""


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
    selector = table.text("selector").strip().removeprefix("{").removesuffix("}").strip(" ,")
    if selector and "=" not in selector:
        raise table.wrong("selector is not label matchers", 'it looks like cluster="prod"')
    return PrometheusSettings(
        **table.server(url, set_by, "http://prometheus.example:9090", {}),
        headers=headers,
        verify=table.flag("verify", True),
        selector=selector,
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
