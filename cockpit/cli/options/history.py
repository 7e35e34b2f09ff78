"""The History Server that is configured, and what it has of one session."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from msgspec import Struct

from cockpit.config import file
from cockpit.config.cluster_flags import Place
from cockpit.insight.causes.ends import bad_ends
from cockpit.model.death import BadEnd
from cockpit.model.error import CockpitError, UsageError
from cockpit.model.event import Event
from cockpit.model.text import one_line
from cockpit.sources.history_server.past_events import past_events
from cockpit.sources.history_server.server import LIVE, HistoryServer, Session
from cockpit.sources.history_server.settings import required
from cockpit.sources.ray.failures import FailuresSource
from cockpit.store.store import Store

AFTER_END_S = 60.0
"""The logs of what ended in the last hour of a session are read: as of this time after it."""


class StoredSession(Struct, frozen=True):
    """A session of a deleted cluster: its events in order, and the store that they make."""

    session: Session
    events: tuple[Event, ...]
    store: Store
    end_s: float
    missing: str = ""
    """One line: what could not be read."""


def sessions() -> Sequence[Session]:
    """Those of the configured server, the newest first. Raises CockpitError."""

    async def listed() -> Sequence[Session]:
        server = _server()
        try:
            return await server.sessions()
        finally:
            await server.aclose()

    return asyncio.run(listed())


def read(where: Place, name: str = "") -> StoredSession:
    """The newest session of the cluster of `where`, or the one of that name."""
    return asyncio.run(_read(where, name))


def chosen(found: Sequence[Session], where: Place, name: str = "") -> Session:
    """The newest stored session that fits. Raises UsageError."""
    fitting = [
        each
        for each in found
        if where.namespace in ("", each.namespace)
        and where.cluster in ("", each.cluster)
        and name in ("", each.name)
    ]
    for each in fitting:
        if each.name != LIVE:
            return each
    if fitting:
        raise UsageError(
            f"RayCluster {fitting[0].cluster} exists, and has no earlier session.",
            todo=f"See: cockpit why -n {fitting[0].namespace} --cluster {fitting[0].cluster}",
        )
    wanted = " of ".join(filter(None, (name, where.cluster or where.namespace)))
    raise UsageError(
        f"The History Server has no session{f' {one_line(wanted)}' if wanted else ''}.",
        f"It has {len(found)} in all." if found else "It has none at all.",
        "cockpit clusters --history lists them.",
    )


def _server() -> HistoryServer:
    return HistoryServer(required(file.read().tables.get("history_server", {}), os.environ))


async def _read(where: Place, name: str) -> StoredSession:
    server = _server()
    try:
        session = chosen(await server.sessions(), where, name)
        async with await server.dashboard(session) as dashboard:
            past = await past_events(dashboard, session)
            store = Store()
            for event in past.events:
                store.apply(event)

            async def ends() -> Sequence[BadEnd]:
                return bad_ends(store, past.end_s + AFTER_END_S)

            failures = FailuresSource(dashboard, ends, clock=lambda: past.end_s)
            events = list(past.events)
            missing = past.missing
            try:
                async for event in failures.poll():
                    store.apply(event)
                    events.append(event)
            except CockpitError as error:
                missing = "; ".join(filter(None, (missing, f"logs: {one_line(error.what)}")))
        return StoredSession(session, tuple(events), store, past.end_s, missing)
    finally:
        await server.aclose()
