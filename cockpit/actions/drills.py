"""Run drills on a cluster, from a key or a verb, and record them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from msgspec.structs import replace

from cockpit.actions.cluster import ClusterActions
from cockpit.actions.jobs import JobActions
from cockpit.drills.engine import interrupted
from cockpit.drills.engine.drill import Experiment
from cockpit.drills.engine.interrupted import Undone
from cockpit.drills.engine.journal import Entry, Journal
from cockpit.drills.engine.lease import is_own
from cockpit.drills.gamedays.gameday import GameDay
from cockpit.drills.gamedays.runner import GameDayRun
from cockpit.drills.plan.plan import BlastRadius, DrillPlan
from cockpit.drills.probes.external import ContextProber, Prober
from cockpit.model.drill import DrillRecord, Verdict
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line
from cockpit.recorder.drills import DrillHistory
from cockpit.session.session import Session

UNDO = "cockpit drill undo"
JOURNAL = ("Drill", "journal")
"""Kind and name in the notices about it."""

log = logging.getLogger(__name__)


class DrillActions(ClusterActions, JobActions):
    """`prober` runs the probes; without it, the probes have no Prometheus.

    `limits` bound the targets of every drill, even if its plan allows more.
    """

    def __init__(
        self,
        session: Session,
        prober: Prober | None = None,
        limits: BlastRadius = BlastRadius(),  # noqa: B008 - frozen
        refusal: str = "",
    ) -> None:
        super().__init__(
            session.backend, session.clock, lambda: session.store.jobs, session.dispatch, refusal
        )
        self._session = session
        self._prober = prober or ContextProber(session)
        self._limits = limits

    def experiment(self, plan: DrillPlan) -> Experiment:
        """One drill on this cluster: it can be prepared to see what it would do, and conducted."""
        self.require_allowed()
        plan = replace(plan, blast_radius=plan.blast_radius.within(self._limits))
        return Experiment(self._session, plan, self._prober, keep=DrillHistory().keep)

    async def drill(self, experiment: Experiment) -> DrillRecord:
        """Run the drill to its end, with a line in the audit log; errors are in the record."""
        plan = experiment.plan
        change = self._of_cluster(f"drill {plan.name}", after=f"{experiment.id} begins")
        with self._audited(change):
            await self._done(change)
            record = await experiment.conduct()
        hit = ", ".join(drill.target for drill in record.drills) or "nothing"
        change = self._of_cluster(change.action, hit, f"{record.verdict.value}: {record.why}")
        if record.verdict in (Verdict.PASSED, Verdict.FAILED, Verdict.ABORTED):
            await self._done(change)
        else:
            self._write(change, CockpitError(record.why))
        return record

    def game_day(self, day: GameDay, log: Callable[[str], None]) -> GameDayRun:
        """Several drills, not begun yet. `log` is called for each step, on the session's thread."""
        self.require_allowed()
        return GameDayRun(self._session, day, self, self._prober, log)

    def earlier_drills(self) -> Sequence[DrillRecord]:
        """Return the stored drills of this cluster. Reads files: not on the UI's thread."""
        kept, _ = DrillHistory().all()
        here = str(self._backend.ref)
        return [one.record for one in kept if one.record.cluster == here]

    async def drill_elsewhere(self) -> str:
        """Return who else holds the drill lease of the cluster; empty: no drill or not known."""
        try:
            holder = await self._backend.holder()
        except CockpitError:
            return ""  # for example without the permission; a new drill reports it when it begins
        return "" if is_own(holder) else holder

    def left(self, only: str = "") -> list[Entry]:
        """Faults that killed cockpit processes left on this cluster.

        Reads files: not on the UI's thread.
        """
        return interrupted.left_on(Journal(), self._backend.ref, only)

    async def entries_to_confirm(self) -> list[Entry]:
        """Of these the entries that are undone only on request."""
        found = await asyncio.to_thread(self.left)
        return interrupted.split(found, self._clock())[1]

    async def undo_entries(self, entries: Sequence[Entry]) -> list[Undone]:
        """Undo these, as far as they still hold; each with its audit line."""
        self.require_allowed()
        done = []

        def on_wait(line: str) -> None:
            self._notice(*JOURNAL, "Waits", line, warning=False)

        async for undone in interrupted.undo_entries(self._backend, Journal(), entries, on_wait):
            done.append(undone)
            entry = undone.entry
            change = self._of_cluster(f"undo {entry.fault}", entry.target, "; ".join(undone.lines))
            self._write(change, undone.error)
            self._notice(
                *JOURNAL, "Undone", interrupted.outcome(undone), warning=undone.error is not None
            )
        return done

    async def undo_recent(self, *, unasked: bool = True) -> None:
        """Undo recently left faults; report the others. Results are Notices.

        Without `unasked`, as on a protected cluster, undo none.
        """
        journal = Journal()
        left = self.left()
        recent, others = interrupted.split(left, self._clock()) if unasked else ([], left)
        await self.undo_entries(recent)
        for entry in others:
            self._notice(*JOURNAL, "Left", f"{interrupted.described(entry, self._clock())}: {UNDO}")
        for entry in interrupted.elsewhere(journal, self._backend.ref):
            what = f"Drill {entry.drill_id} left {entry.fault} on {entry.cluster}"
            self._notice(*JOURNAL, "Left", f"{what}: {UNDO}")
        for bad in journal.unreadable():
            self._notice(*JOURNAL, "Left", bad.line)

    def begin_undo(self, *, unasked: bool = True) -> Future[None]:
        """Start `undo_recent` on the session's loop; a failure of it becomes a Notice too."""
        begun = self._session.submit(self.undo_recent(unasked=unasked))
        begun.add_done_callback(self._report_failure)
        return begun

    def _report_failure(self, begun: Future[None]) -> None:
        if begun.cancelled():
            return
        if (error := begun.exception()) is not None:
            log.error("what earlier drills left was not undone", exc_info=error)
            what = error.what_and_why if isinstance(error, CockpitError) else repr(error)
            self._notice(*JOURNAL, "Left", one_line(f"NOT undone: {what} {UNDO}", 400))
