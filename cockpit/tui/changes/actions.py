"""What the screens need from outside: a connection to look at, and the changes they may ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:  # the first paint does not wait for these
    from cockpit.backends.protocol import Scaled, Terminal
    from cockpit.drills.engine.drill import Experiment
    from cockpit.drills.engine.interrupted import Undone
    from cockpit.drills.engine.journal import Entry
    from cockpit.drills.gamedays.gameday import GameDay
    from cockpit.drills.gamedays.runner import GameDayRun
    from cockpit.drills.plan.plan import DrillPlan
    from cockpit.launch.job import BundledJob
    from cockpit.model.cluster import ClusterRef
    from cockpit.model.drill import DrillRecord
    from cockpit.model.run import Job
    from cockpit.model.scale import ScaleRequest
    from cockpit.session.session import Session, Source

Via = Literal["job", "rayjob"]
"""How a job is launched: submitted over HTTP, or as a RayJob resource."""


class Actions(Protocol):
    """Every change that the screens can ask for. All raise the errors of `cockpit.model.error`.

    The coroutines run on the session's loop. What they did comes back as events. `uid` is that of
    the object that was shown when the user confirmed: another one of the same name is not changed.
    """

    def experiment(self, plan: DrillPlan) -> Experiment:
        """One drill, not begun yet. Answers at once; its coroutines run on the session's loop."""
        ...

    async def drill(self, experiment: Experiment) -> DrillRecord:
        """Conduct it to its end; what went wrong is in the record."""
        ...

    def game_day(self, day: GameDay, say: Callable[[str], None]) -> GameDayRun:
        """Several drills, not begun yet. `say` is told each step, on the session's thread."""
        ...

    def earlier_drills(self) -> Sequence[DrillRecord]:
        """Those of this cluster that are kept on this machine. Reads files: not from the UI."""
        ...

    async def drill_elsewhere(self) -> str:
        """Who else has the cluster for a drill now, where that is known; empty: no drill."""
        ...

    async def entries_to_confirm(self) -> Sequence[Entry]:
        """What killed cockpits have left here that is undone only when the user says so."""
        ...

    async def undo_entries(self, entries: Sequence[Entry]) -> Sequence[Undone]:
        """Undo these, as far as they still hold."""
        ...

    async def scale(self, request: ScaleRequest) -> Scaled: ...

    async def suspend(self, suspended: bool, *, uid: str = "") -> None: ...

    async def cordon(self, machine: str, cordoned: bool) -> None: ...

    async def attach(
        self, pod: str, argv: Sequence[str], *, tty: bool, rows: int = 24, columns: int = 80
    ) -> Terminal:
        """Run a command in the pod with its streams open."""
        ...

    async def stop_job(self, job_id: str, *, uid: str = "") -> None:
        """Also one that a RayJob submitted."""
        ...

    async def resume(self, job_id: str) -> Job:
        """Submit a job that has ended again, and return the new one."""
        ...

    async def delete_job(self, job_id: str, *, uid: str = "") -> None:
        """Also one that a RayJob submitted."""
        ...

    async def launch(self, name: str, settings: Mapping[str, str], via: Via = "job") -> str:
        """Launch the bundled job; returns the submission id, or the RayJob's name."""
        ...

    def bundled_jobs(self) -> tuple[BundledJob, ...]:
        """Answers at once."""
        ...


LogSource: TypeAlias = "Callable[[str], Source | None]"
"""From a stream's name to the source that follows that log; None when nothing can.

Streams are `job:ID`, `rank:N`, `pod:NAME`, and `previous:NAME`: the pod's container before its last
restart.
"""


@dataclass(frozen=True, slots=True)
class Connection:
    """A cluster to look at, and others beside it. The sessions are started."""

    session: Session | None
    """None: no cluster is chosen yet, and the fleet is shown to choose from."""
    actions: Actions | None = None
    """None: nothing can be changed here."""
    log_source: LogSource | None = None
    ends_with_screen: str = ""
    """What quitting takes down with it, as a noun phrase; quitting then asks first."""
    fleet: Session | None = None
    """Its store holds only `fleet` and the sources `context:NAME`."""
    reconnect: Reconnect | None = None
    """How to look at another cluster; None where there is no other."""

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
