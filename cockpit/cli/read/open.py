"""`cockpit open`: a private route to a web page of the cluster, and the link to it."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from cockpit.cli.options import connect
from cockpit.cli.output.streams import log
from cockpit.model.error import ExitCode, UsageError
from cockpit.model.text import one_line

if TYPE_CHECKING:
    from cockpit.backends.kuberay.service_route import ServiceName
    from cockpit.model.cluster import DashboardRoute
    from cockpit.session.session import Session

T = TypeVar("T")
PAGES = ("dashboard", "grafana", "mlflow")
GRAFANA_NAMESPACE = "monitoring"
"""As manifests/monitoring names it; MLflow is in the namespace of the cluster."""
FRESH_S = 2.0
"""How long a route is used before it is checked again: a page sends many requests at once."""


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.description = (
        "Create a private route to a page, print its link, and open it in a browser. The route "
        "is on "
        "127.0.0.1, works with the link only, and ends with Ctrl-C."
    )
    parser.add_argument("page", choices=PAGES, help="the page: Ray's dashboard, Grafana or MLflow")
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1 (default: a free one)")
    parser.add_argument(
        "--service",
        metavar="[NAMESPACE/]NAME[:PORT]",
        help="of grafana or mlflow on Kubernetes (default: monitoring/grafana, mlflow)",
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the link")


def run(args: argparse.Namespace) -> int:
    if not 0 <= args.port < 65_536:
        raise UsageError("--port must be from 1 to 65535.")
    if args.service and args.page == "dashboard":
        raise UsageError("--service is for grafana and mlflow.")
    if args.page != "dashboard" and not args.service and (url := configured_url(args.page)):
        _show(url, args)
        return int(ExitCode.DONE)
    with connect.session(args, sources=(), kinds=("cluster", "pods")) as session:
        if args.page == "dashboard":
            return _dashboard(session, args)
        return _service(session, args)


def configured_url(page: str) -> str:
    """The address under [grafana] or [mlflow]; empty without one. It needs no route."""
    from cockpit.config import file

    tables = file.read().tables
    if page == "mlflow":
        from cockpit.sources.mlflow.settings import parse

        return parse(tables.get("mlflow", {}), os.environ).url
    return grafana_url(tables.get("grafana", {}))


def grafana_url(raw: Mapping[str, Any]) -> str:
    """The address in the table `[grafana]`. Raises UsageError."""
    from cockpit.sources.server_settings import Table

    table = Table("grafana", raw, {"url": str}, os.environ)
    return table.address(table.text("url"), "https://grafana.example").url


def _dashboard(session: Session, args: argparse.Namespace) -> int:
    backend = session.backend
    route = session.call(backend.dashboard())
    if needs_no_proxy(route):
        _show(route.base_url, args)
        return int(ExitCode.DONE)
    return _hold(session, backend.dashboard, args, keep_host=False)


def needs_no_proxy(route: DashboardRoute) -> bool:
    """Whether a browser on this machine gets there without credentials and tunnels."""
    return not (route.headers or route.socket_path or route.proxy or route.tls)


def _service(session: Session, args: argparse.Namespace) -> int:
    from cockpit.backends.kuberay.backend import KubeRayBackend
    from cockpit.backends.kuberay.service_route import ServiceRoute

    if not isinstance(session.backend, KubeRayBackend):
        what = "[grafana] url" if args.page == "grafana" else "[mlflow] uri"
        raise UsageError(
            f"The address of {args.page} is unknown.",
            "This cluster is not on Kubernetes, where it would be a Service.",
            f"Set {what} in the configuration: cockpit config edit",
        )
    name = service_name(args.service or "", args.page, session.backend.ref.namespace)
    service = ServiceRoute(session.backend.client, name)
    try:
        session.call(service.route())  # so that what is missing is reported now
        return _hold(session, service.route, args, keep_host=True)
    finally:
        session.call(service.aclose())


def service_name(given: str, page: str, namespace: str) -> ServiceName:
    """Parse `[NAMESPACE/]NAME[:PORT]`. Raises UsageError."""
    from cockpit.backends.kuberay.service_route import ServiceName

    if not given:
        return ServiceName(GRAFANA_NAMESPACE if page == "grafana" else namespace, page)
    place, _, rest = given.rpartition("/")
    name, colon, port = rest.partition(":")
    if not name or (colon and not (port.isascii() and port.isdecimal())):
        raise UsageError(
            f"{one_line(given)!r} is not a Service.", "For example: monitoring/grafana:3000."
        )
    return ServiceName(place or namespace, name, int(port) if colon else 0)


def _hold(
    session: Session,
    route: Callable[[], Coroutine[Any, Any, DashboardRoute]],
    args: argparse.Namespace,
    *,
    keep_host: bool,
) -> int:
    """Pass requests on until Ctrl-C, which is how this verb ends."""
    from cockpit.backends.private_proxy import PrivateProxy

    current = kept(lambda: session.call(route()), time.monotonic)
    proxy = PrivateProxy(current, port=args.port, keep_host=keep_host, read_only=args.read_only)
    with proxy.running():
        _show(proxy.link, args)
        log(
            f"Connected through {current().via or 'its address'}. The link is private to you. "
            "Press Ctrl-C to close it."
        )
        if os.environ.get("SSH_CONNECTION"):
            log(f"On your workstation: ssh -N -L {proxy.port}:127.0.0.1:{proxy.port} THIS-HOST")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            log("Closed.")
    return int(ExitCode.DONE)


def kept(ask: Callable[[], T], clock: Callable[[], float]) -> Callable[[], T]:
    """`ask`, with its answer reused for FRESH_S."""
    lock = threading.Lock()
    answers: list[tuple[float, T]] = []

    def current() -> T:
        with lock:
            if not answers or clock() - answers[0][0] > FRESH_S:
                found = ask()
                answers[:] = [(clock(), found)]
            return answers[0][1]

    return current


def _show(url: str, args: argparse.Namespace) -> None:
    print(url, flush=True)
    if args.no_browser or not sys.stdout.isatty():
        return
    # Without a display, Python would start a text browser in this terminal.
    if any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")):
        webbrowser.open(url)
