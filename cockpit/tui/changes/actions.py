"""What the screens need from outside: a connection with its session and its actions."""

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
"""From a stream's name to the source that follows that log; None when nothing can.

Streams are `job:ID`, `rank:N`, `pod:NAME`, and `previous:NAME`: the pod's container before its last
restart.
"""


class Connection(Struct, frozen=True):
    """The shown cluster, and the others. The sessions are started."""

    session: Session | None
    """None: no cluster is chosen yet, and the fleet is shown to choose from."""
    actions: DrillActions | None = None
    """None: nothing can be changed here."""
    log_source: LogSource | None = None
    ends_with_screen: str = ""
    """What quitting ends, as a noun phrase; quitting then asks for confirmation."""
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
"""Runs in a thread while the screen is up already. Each line that it says is shown.

A CockpitError ends the start and is shown. When the user has quit meanwhile, the next line said
raises `Quit`, so that the start can undo what it has begun.
"""

Reconnect: TypeAlias = "Callable[[ClusterRef, Log], Connection]"
"""As `Connect`, to that cluster. What it leaves open of `fleet` and `reconnect` stays as it was;
the session that was looked at before is closed by the screen."""


class Quit(Exception):
    """The user left while the cluster was still starting."""
