"""One check of `cockpit doctor`."""

from __future__ import annotations

from msgspec import Struct

from cockpit.backends.protocol import Backend
from cockpit.cli.options import connect
from cockpit.format import plural
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line
from cockpit.session import builder


class Check(Struct, frozen=True):
    name: str
    ok: bool
    found: str
    fix: str = ""


def failed(name: str, error: CockpitError) -> Check:
    return Check(name, False, one_line(error.what_and_why), one_line(error.todo))


def answers(name: str, backend: Backend) -> Check:
    """Whether the dashboard lists its nodes."""
    try:
        with builder.session_on(backend, sources=("ray",)) as session:
            connect.wait_for(session, ("ray",))
            state = session.store.sources.get("ray")
    except CockpitError as error:
        return Check(name, False, error.what, error.todo)
    if state is None or not state.ok:
        return Check(name, False, state.error if state else "no answer", "see cockpit status")
    alive = sum(node.alive for node in session.store.nodes.values())
    return Check(name, True, f"{plural(alive, 'node')}")
