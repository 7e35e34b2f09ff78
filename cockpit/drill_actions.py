"""Drills as changes of a cluster, from a key or a verb alike: conducted, kept, and written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cockpit.actions import ClusterActions
from cockpit.drills import orphans
from cockpit.drills.blast_radius import BlastRadius
from cockpit.drills.engine import Experiment
from cockpit.drills.gameday import GameDay
from cockpit.drills.gameday_run import GameDayRun
from cockpit.drills.journal import Journal
from cockpit.drills.lease import is_own
from cockpit.drills.orphans import Mended
from cockpit.drills.plan import DrillPlan
from cockpit.drills.probe import GroundProber, Prober
from cockpit.model.drill import DrillRecord, Verdict
from cockpit.model.error import CockpitError
from cockpit.model.event import Notice
from cockpit.model.text import one_line
from cockpit.recorder.drills import DrillHistory
from cockpit.session import Session


class DrillActions(ClusterActions):
    """`prober` asks the probes; without it, one that knows of no Prometheus.

    `limits` bound what every drill may hit at once, whatever its plan allows.
    """

    def __init__(
        self,
        session: Session,
        prober: Prober | None = None,
        limits: BlastRadius = BlastRadius(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(
            session.backend, session.clock, lambda: session.store.jobs, session.dispatch
        )
        self._session = session
        self._prober = prober or GroundProber(session)
        self._limits = limits

    def experiment(self, plan: DrillPlan) -> Experiment:
        """One drill on this cluster: it can be prepared to see what it would do, and conducted."""
        plan = replace(plan, blast_radius=plan.blast_radius.within(self._limits))
        return Experiment(self._session, plan, self._prober, keep=DrillHistory().keep)

    async def drill(self, experiment: Experiment) -> DrillRecord:
        """Conduct it to its end, with its audit line; what went wrong is in the record."""
        plan = experiment.plan
        change = self._of_cluster(f"drill {plan.name}", after=f"{experiment.id} begins")
        with self._noting_failure(change):
            await self._done(change)
            record = await experiment.conduct()
        hit = ", ".join(drill.target for drill in record.drills) or "nothing"
        change = self._of_cluster(change.action, hit, f"{record.verdict.value}: {record.why}")
        if record.verdict in (Verdict.PASSED, Verdict.FAILED, Verdict.ABORTED):
            await self._done(change)
        else:
            self._write(change, CockpitError(record.why))
        return record

    def game_day(self, day: GameDay, say: Callable[[str], None]) -> GameDayRun:
        """Several drills, not begun yet. `say` is told each step, on the session's thread."""
        return GameDayRun(self._session, day, self, self._prober, say)

    def earlier_drills(self) -> Sequence[DrillRecord]:
        """Those of this cluster that are kept on this machine. Reads files: not from the UI."""
        kept, _ = DrillHistory().all()
        here = str(self._backend.ref)
        return [one.record for one in kept if one.record.cluster == here]

    async def drill_elsewhere(self) -> str:
        """Who else has the cluster for a drill now, where that can be told; empty: nobody."""
        try:
            holder = await self._backend.holder()
        except CockpitError:
            return ""  # no right to look, say: whoever wants a drill is told when it begins
        return "" if is_own(holder) else holder

    async def mend(self, journal: Journal, only: str = "") -> list[Mended]:
        """Undo what drills have left on this cluster whose cockpit was killed."""
        done = []
        async for mended in orphans.mend(self._backend, journal, only):
            done.append(mended)
            entry = mended.entry
            change = self._of_cluster(f"undo {entry.fault}", entry.target, "; ".join(mended.lines))
            self._write(change, mended.error)
        return done

    async def mend_at_start(self) -> None:
        """The same before anything else is asked for; what there is to say comes as Notices."""
        journal = Journal()
        try:
            for mended in await self.mend(journal):
                self._told("Undone", orphans.words(mended), mended.error is not None)
            for entry in orphans.elsewhere(journal, self._backend):
                words = f"drill {entry.drill_id} has left {entry.fault} on {entry.cluster}"
                self._told("Left", f"{words}: cockpit drill undo", True)
        except CockpitError as error:
            self._told("Left", one_line(" ".join((error.what, error.why))), True)

    def _told(self, reason: str, message: str, warning: bool) -> None:
        self._session.dispatch(
            Notice(
                at_s=self._clock(),
                source="user",
                kind="Drill",
                name="journal",
                reason=reason,
                message=message,
                warning=warning,
            )
        )
