"""Find Prometheus: the configured address, else Ray's default."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from urllib.parse import urlsplit

from cockpit.model.cluster import DashboardRoute
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line
from cockpit.sources.prometheus.api import Prometheus
from cockpit.sources.prometheus.settings import HOST_VARIABLE, NOWHERE, PrometheusSettings
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import RouteOf

PORT = 9090
"""Ray's dashboard uses localhost:9090 unless RAY_PROMETHEUS_HOST is set."""
GUESS_TIMEOUT_S = 3.0

UNKNOWN = (
    "Ray's dashboard reaches a Prometheus, but does not report its address: "
    f"set url under [prometheus], or {HOST_VARIABLE}"
)


def finder(
    settings: PrometheusSettings,
    dashboard: Dashboard,
    route_of: RouteOf,
    *,
    port: int = PORT,
) -> Callable[[], Awaitable[PrometheusSettings]]:
    """Return the settings of a PrometheusSource: `settings`, or without an address a guess.

    The guess is port 9090 of the head. It is made only when the dashboard reports that its
    Prometheus is available and the dashboard is reached directly, and used when Prometheus
    responds. No credential is ever sent to it.
    """
    guessed: list[PrometheusSettings] = []

    async def find() -> PrometheusSettings:
        if settings.url:
            return settings
        if guessed:
            return guessed[0]
        try:
            if not await dashboard.reaches_prometheus():
                return settings
        except CockpitError as error:  # reported by another source; not known here
            return replace(settings, why_not=one_line(f"{NOWHERE} ({error})"))
        if not (host := _host(await route_of())):
            return replace(settings, why_not=UNKNOWN)
        guess = PrometheusSettings(
            f"http://{host}:{port}", selector=settings.selector, set_by="dashboard"
        )
        try:
            async with aclosing(Prometheus(guess, timeout_s=GUESS_TIMEOUT_S)) as client:
                await client.now_s()
        except CockpitError:
            return replace(settings, why_not=UNKNOWN)
        guessed.append(guess)
        return guess

    return find


def _host(route: DashboardRoute) -> str:
    """Empty for an indirect route, whose address is not the head's."""
    if route.via or route.socket_path or route.proxy:
        return ""
    host = urlsplit(route.base_url).hostname or ""
    return f"[{host}]" if ":" in host else host
