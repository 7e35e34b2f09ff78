"""A recording as a session and a connection: what the screens look at, and what they may ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from cockpit.backends.protocol import Scaled, Terminal
from cockpit.drills.engine.drill import Experiment
from cockpit.drills.engine.interrupted import Undone
from cockpit.drills.engine.journal import Entry
from cockpit.drills.gamedays.gameday import GameDay
from cockpit.drills.gamedays.runner import GameDayRun
from cockpit.drills.plan.plan import DrillPlan
from cockpit.launch.job import BundledJob
from cockpit.model.drill import DrillRecord
from cockpit.model.error import NotAllowedError
from cockpit.model.run import Job
from cockpit.model.scale import ScaleRequest
from cockpit.recorder.reading.player import Player
from cockpit.session.replay import ReplaySession
from cockpit.tui.changes.actions import Connection, Via


class RecordedActions:
    """Every change, refused."""

    def experiment(self, plan: DrillPlan) -> Experiment:
        _refuse()

    async def drill(self, experiment: Experiment) -> DrillRecord:
        _refuse()

    def game_day(self, day: GameDay, log: Callable[[str], None]) -> GameDayRun:
        _refuse()

    def earlier_drills(self) -> Sequence[DrillRecord]:
        """Of a recording, only what it holds."""
        return ()

    async def drill_elsewhere(self) -> str:
        return ""

    async def entries_to_confirm(self) -> Sequence[Entry]:
        return ()

    async def undo_entries(self, entries: Sequence[Entry]) -> Sequence[Undone]:
        _refuse()

    async def scale(self, request: ScaleRequest) -> Scaled:
        _refuse()

    async def suspend(self, suspended: bool, *, uid: str = "") -> None:
        _refuse()

    async def cordon(self, machine: str, cordoned: bool) -> None:
        _refuse()

    async def attach(
        self, pod: str, argv: Sequence[str], *, tty: bool, rows: int = 24, columns: int = 80
    ) -> Terminal:
        _refuse()

    async def stop_job(self, job_id: str, *, uid: str = "") -> None:
        _refuse()

    async def resume(self, job_id: str) -> Job:
        _refuse()

    async def delete_job(self, job_id: str, *, uid: str = "") -> None:
        _refuse()

    async def launch(self, name: str, settings: Mapping[str, str], via: Via = "job") -> str:
        _refuse()

    def bundled_jobs(self) -> tuple[BundledJob, ...]:
        return ()


def connection(player: Player) -> Connection:
    """A started session on the recording."""
    session = ReplaySession(player)
    session.start()
    return Connection(session, RecordedActions())


def _refuse() -> NoReturn:
    raise NotAllowedError("Nothing can be changed here.", "This is a recording.")
