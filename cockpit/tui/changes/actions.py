"""The interface of the UI to its cluster: a connection with its session and its actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:  # the first paint does not wait for these
    from cockpit.actions.drills import DrillActions
    from cockpit.model.cluster import ClusterRef
    from cockpit.session.session import Session, Source

READ_ONLY = "The UI is read-only. Start cockpit without --read-only to change things."
Via = Literal["job", "rayjob"]
"""How a job is launched: submitted over HTTP, or as a RayJob resource."""


LogSource: TypeAlias = "Callable[[str], Source | None]"
"""Return the source that follows a stream, or None if it cannot be followed.

Streams are `job:ID`, `rank:N`, `pod:NAME`, `previous:NAME` (the pod's container before its last
restart), and `all:RUN` (all logs of a run, merged by time).
"""


class Connection(Struct, frozen=True):
    """The shown cluster, and the others. The sessions are started."""

    session: Session | None
    """None: no cluster is selected yet, and the fleet is shown."""
    actions: DrillActions | None = None
    """None: changes are not possible."""
    log_source: LogSource | None = None
    ends_with_screen: str = ""
    """What quitting deletes or stops, as a noun phrase; quitting then asks for confirmation."""
    fleet: Session | None = None
    """Its store holds only `fleet` and the sources `context:NAME`."""
    reconnect: Reconnect | None = None
    """Connects to another cluster; None where there is no other."""

    def close(self) -> None:
        """End the sessions. Changes nothing on any cluster."""
        for session in (self.session, self.fleet):
            if session is not None:
                session.close()


Log: TypeAlias = Callable[[str], None]

Connect: TypeAlias = Callable[[Log], Connection]
"""Connect, in a thread, while the UI is already shown.

Progress lines are shown. A CockpitError ends the start and is shown. When the user has quit, the
next progress line raises `Quit`, so that the start can undo its work.
"""

Reconnect: TypeAlias = "Callable[[ClusterRef, Log], Connection]"
"""As `Connect`, to that cluster. `fleet` and `reconnect` are kept if the result has none; the
screen closes the session of the previous cluster."""


class Quit(Exception):
    """The user left while the cluster was still starting."""
