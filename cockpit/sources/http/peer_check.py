"""httpx's hook into each connection that it opens: a route checks its peer before it sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cockpit.model.cluster import DashboardRoute
from cockpit.model.error import CockpitError

OPEN = "connection.connect_tcp.complete"
"""httpcore's event for a new connection, whose stream is `return_value`."""


def extensions(route: DashboardRoute) -> dict[str, Any]:
    """Return the extensions of a request of httpx.Client."""
    check = route.check_peer
    if check is None:
        return {}

    def trace(event: str, info: Mapping[str, Any]) -> None:
        if event == OPEN:
            try:
                check()
            except CockpitError:
                info["return_value"].close()
                raise

    return {"trace": trace}


def async_extensions(route: DashboardRoute) -> dict[str, Any]:
    """Return the extensions of a request of httpx.AsyncClient, which awaits its hook."""
    check = route.check_peer
    if check is None:
        return {}

    async def trace(event: str, info: Mapping[str, Any]) -> None:
        if event == OPEN:
            try:
                check()
            except CockpitError:
                await info["return_value"].aclose()
                raise

    return {"trace": trace}
