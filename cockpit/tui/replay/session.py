"""A recording as a session and a connection for the UI."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.actions.drills import DrillActions
from cockpit.drills.engine.journal import Entry
from cockpit.launch.job import BundledJob
from cockpit.model.drill import DrillRecord
from cockpit.recorder.reading.player import Player
from cockpit.session.replay import ReplaySession
from cockpit.session.session import Session
from cockpit.tui.changes.actions import Connection


class RecordedActions(DrillActions):
    """Refuse every change; no response reflects this host or the current cluster."""

    def __init__(self, session: Session) -> None:
        super().__init__(session, refusal="This is a recording.")

    def earlier_drills(self) -> Sequence[DrillRecord]:
        return ()

    async def drill_elsewhere(self) -> str:
        return ""

    async def entries_to_confirm(self) -> list[Entry]:
        return []

    def bundled_jobs(self) -> tuple[BundledJob, ...]:
        return ()


def connection(player: Player) -> Connection:
    """A started session on the recording."""
    session = ReplaySession(player)
    session.start()
    return Connection(session, RecordedActions(session))
