"""Build the session on a cluster: its backend's watch, and the sources of Ray."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cockpit.session.session import Listener, Session, Source
from cockpit.sources.polling.interval import Pace
from cockpit.sources.ray.cluster import RaySource
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.telemetry.source import TelemetrySource

if TYPE_CHECKING:
    from cockpit.backends.protocol import Backend

POLLED = ("ray", "telemetry")
"""The sources of a session that is not monitored, in addition to the backend's watch."""
REST_AT_MOST_S = {"kuberay": math.inf, "ssh": 5.0}
"""The longest poll interval at rest, by backend: how late a node that changes is shown on hosts."""


def session_on(
    cluster: Backend,
    *,
    sources: Sequence[str] = POLLED,
    more: Callable[[], Sequence[Source]] = lambda: (),
    listeners: Sequence[Listener] = (),
) -> Session:
    """Return a session with those of `POLLED` and `failures` that are in `sources`; not started.

    `more` makes other sources; it is called on the session's loop.
    """
    pace = pace_of(cluster)

    def made() -> Sequence[Source]:
        polled = polled_sources(Dashboard(cluster.dashboard), pace, sources)
        failures = (failures_source(session, pace),) if "failures" in sources else ()
        return (*polled, *failures, *more())

    session = Session(cluster, made, pace=pace, listeners=listeners)
    return session


def failures_source(session: Session, pace: Pace | None = None) -> Source:
    """Return the source that reads the logs of what ended badly, as the store of `session` has it.

    To be called on the session's loop, or given to `Session.add`.
    """
    from cockpit.insight.causes.ends import bad_ends
    from cockpit.sources.ray.failures import FailuresSource

    dashboard = Dashboard(session.backend.dashboard)
    return FailuresSource(
        dashboard, lambda: session.ask(lambda store: bad_ends(store, session.clock())), pace=pace
    )


def pace_of(cluster: Backend) -> Pace | None:
    """Return the poll interval for a shared API server or for hosts over SSH, else None."""
    at_most_s = REST_AT_MOST_S.get(cluster.ref.backend)
    return None if at_most_s is None else Pace(rest_at_most_s=at_most_s)


def polled_sources(
    dashboard: Dashboard, pace: Pace | None, wanted: Sequence[str] = POLLED
) -> Sequence[Source]:
    made: dict[str, Source] = {
        "ray": RaySource(dashboard, pace=pace),
        "telemetry": TelemetrySource(dashboard, pace=pace),
    }
    return [source for name, source in made.items() if name in wanted]
