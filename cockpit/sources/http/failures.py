"""The errors of both HTTP clients, without the import of either."""

from __future__ import annotations

import sys
from typing import Any


def read_timeouts() -> tuple[type[Exception], ...]:
    """Raised when no byte arrived within the timeout."""
    from cockpit.sources.http import client

    if (httpx := _imported_httpx()) is None:
        return (client.ReadTimeoutError,)
    return client.ReadTimeoutError, httpx.ReadTimeout


def unreachable() -> tuple[type[Exception], ...]:
    """All others of a connection, a request or a response; after `read_timeouts`."""
    if (httpx := _imported_httpx()) is None:
        return (OSError,)
    return OSError, httpx.HTTPError, httpx.InvalidURL


def _imported_httpx() -> Any:
    """httpx, or None if it is not imported: then nothing can raise its errors."""
    return sys.modules.get("httpx")
