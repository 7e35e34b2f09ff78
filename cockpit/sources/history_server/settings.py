"""The History Server's address: `[history_server]` of the configuration, or a variable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cockpit.model.error import UsageError
from cockpit.sources.server_settings import KEYS, ServerSettings, Table

VARIABLE = "COCKPIT_HISTORY_SERVER"
_EXAMPLE = "http://127.0.0.1:30080"
_KEYS = {"url": str} | KEYS


def parse(raw: Mapping[str, Any], environ: Mapping[str, str]) -> ServerSettings:
    """Read `[history_server]`, which may be empty; so may `url` in the result.

    Raises UsageError for invalid values, and for a file or variable that does not exist.
    """
    table = Table("history_server", raw, _KEYS, environ)
    url, set_by = table.text("url"), "configuration"
    if not url and (url := environ.get(VARIABLE, "")):
        set_by = "environment"
    return ServerSettings(
        **table.server(url, set_by, _EXAMPLE, {}), verify=table.flag("verify", True)
    )


def required(raw: Mapping[str, Any], environ: Mapping[str, str]) -> ServerSettings:
    """As `parse`. Raises UsageError without an address."""
    found = parse(raw, environ)
    if not found.url:
        raise UsageError(
            "No History Server is configured.",
            f"Its address is url under [history_server], or {VARIABLE}.",
            "For example: kubectl port-forward service/historyserver 30080, and "
            f"export {VARIABLE}={_EXAMPLE}",
        )
    return found
