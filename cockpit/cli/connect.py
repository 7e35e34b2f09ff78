"""From the flags to a cluster: its backend, and a session on it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cockpit.backends.local import LocalBackend, LocalCluster, list_clusters
from cockpit.backends.protocol import Backend
from cockpit.model.error import UnreachableError, UsageError
from cockpit.session import Session, Source
from cockpit.sources.dashboard import Dashboard
from cockpit.sources.ray import RaySource
from cockpit.sources.telemetry import TelemetrySource

SETTLE_S = 5.0
"""How long one look waits for its slowest source; what is missing then is shown as missing."""

__all__ = ["Session", "backend", "session", "wait_for"]


def backend(args: argparse.Namespace) -> Backend:
    """The cluster that flags and environment name, or the only one that there is."""
    return LocalBackend(_choose(list_clusters(), args.cluster))


def _choose(clusters: Sequence[LocalCluster], wanted: str) -> str:
    names = [cluster.name for cluster in clusters]
    if wanted:
        if wanted in names:
            return wanted
        raise UnreachableError(
            f"There is no local cluster {wanted!r}.",
            f"There is: {', '.join(names) or 'none'}.",
            f"Start it with: cockpit local up {wanted}",
        )
    if not names:
        raise UnreachableError(
            "There is no cluster to look at.",
            "No local cluster runs.",
            "Start one with: cockpit local up, or see everything at once with: cockpit demo",
        )
    if len(names) > 1:
        raise UsageError(
            f"There are {len(names)} local clusters: {', '.join(names)}.",
            todo="Say which with --cluster NAME.",
        )
    return names[0]


def session(
    args: argparse.Namespace, *, sources: Sequence[str] = ("backend", "ray", "telemetry")
) -> Session:
    """A session on the chosen cluster with those of the sources that are wanted; not started."""
    return session_on(backend(args), sources=sources)


def session_on(
    cluster: Backend, *, sources: Sequence[str] = ("backend", "ray", "telemetry")
) -> Session:
    def make() -> Sequence[Source]:
        dashboard = Dashboard(cluster.dashboard)
        made: list[Source] = []
        if "ray" in sources:
            made.append(RaySource(dashboard))
        if "telemetry" in sources:
            made.append(TelemetrySource(dashboard))
        return made

    return Session(cluster, make)


def wait_for(session: Session, sources: Sequence[str], timeout_s: float = SETTLE_S) -> None:
    """Until each of the sources has spoken, well or ill, or the time is up."""
    wanted = set(sources)
    session.wait(lambda store: wanted <= store.sources.keys(), timeout_s)
