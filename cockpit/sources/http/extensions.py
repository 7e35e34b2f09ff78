"""What httpx does with each connection to a route: the name of the certificate, and its check.

A route may check its peer before anything is sent.
"""

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
        return _server_name(route)

    def trace(event: str, info: Mapping[str, Any]) -> None:
        if event == OPEN:
            try:
                check()
            except CockpitError:
                info["return_value"].close()
                raise

    return {"trace": trace, **_server_name(route)}


def async_extensions(route: DashboardRoute) -> dict[str, Any]:
    """Return the extensions of a request of httpx.AsyncClient, which awaits its hook."""
    check = route.check_peer
    if check is None:
        return _server_name(route)

    async def trace(event: str, info: Mapping[str, Any]) -> None:
        if event == OPEN:
            try:
                check()
            except CockpitError:
                await info["return_value"].aclose()
                raise

    return {"trace": trace, **_server_name(route)}


def _server_name(route: DashboardRoute) -> dict[str, str]:
    return {"sni_hostname": route.server_name} if route.server_name else {}
