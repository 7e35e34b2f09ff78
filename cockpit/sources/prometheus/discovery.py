"""Finding the Prometheus: what is said, else where Ray would have it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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
"""Ray's dashboard looks at localhost:9090 unless RAY_PROMETHEUS_HOST says otherwise."""
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
    """For a PrometheusSource: `settings` as they are, and without an address a guess.

    The guess is the head's own port 9090, made only when the dashboard says that its Prometheus
    answers and is itself reached directly; it is taken when it answers us too. No credential is
    ever sent to it.
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
        except CockpitError as error:  # told of by who watches the dashboard; none is known here
            return replace(settings, why_not=one_line(f"{NOWHERE} ({error})"))
        if not (host := _host(await route_of())):
            return replace(settings, why_not=UNKNOWN)
        guess = PrometheusSettings(
            f"http://{host}:{port}", selector=settings.selector, said_by="dashboard"
        )
        try:
            await Prometheus(guess, timeout_s=GUESS_TIMEOUT_S).now_s()
        except CockpitError:
            return replace(settings, why_not=UNKNOWN)
        guessed.append(guess)
        return guess

    return find


def _host(route: DashboardRoute) -> str:
    """Empty for a way through something else, whose address is not the head's."""
    if route.via or route.socket_path or route.proxy:
        return ""
    host = urlsplit(route.base_url).hostname or ""
    return f"[{host}]" if ":" in host else host
