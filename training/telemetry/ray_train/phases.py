"""The phases that only ranks can report, and checkpoint durations, from their messages."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from training.telemetry.wire import AttemptEnd, Body, Notice, Phase, Report
from training.telemetry.worker.attempt_observer import (
    NOTICE,
    REPORT_BEGINS,
    RESTORE_BEGINS,
    RESTORE_ENDS,
)

_ATTEMPTS_KEPT = 2000
"""Those with the newest messages: each of many trials may be a run."""
_REPORTS_KEPT = 64
_PHASES = {RESTORE_BEGINS: "restore", RESTORE_ENDS: "first step"}


@dataclass(slots=True)
class _Attempt:
    runs: bool = False
    """Its first step or report was completed, or it has ended."""
    reports_begun: dict[int, int] = field(default_factory=dict)
    """By rank, the number of its reports that have started."""
    begun_s: OrderedDict[int, float] = field(default_factory=OrderedDict)
    """By number of the report, when the first rank started it."""
    reported: int = 0


class Phases:
    """One driver's attempts. All times that are subtracted are by one clock, the aggregator's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._attempts: OrderedDict[tuple[str, int], _Attempt] = OrderedDict()

    def note(self, run: str, attempt: int, rank: int, what: str) -> Body | None:
        """The records that follow from a rank's message."""
        known = self._attempt(run, attempt)
        if what == REPORT_BEGINS:
            number = known.reports_begun[rank] = known.reports_begun.get(rank, 0) + 1
            known.begun_s.setdefault(number, self._clock())
            while len(known.begun_s) > _REPORTS_KEPT:
                known.begun_s.popitem(last=False)
            return self.runs(run, attempt)
        if what.startswith(NOTICE):
            reason, _, message = what.removeprefix(NOTICE).partition(" ")
            return Notice(run=run, attempt=attempt, rank=rank, reason=reason, message=message)
        phase = _PHASES.get(what)
        if phase is None or known.runs:
            return None
        return Phase(run=run, attempt=attempt, phase=phase)

    def runs(self, run: str, attempt: int) -> Body | None:
        """A rank completed a step, or started a report: recorded once for an attempt."""
        known = self._attempt(run, attempt)
        if known.runs:
            return None
        known.runs = True
        return Phase(run=run, attempt=attempt, phase="running")

    def wrote(self, body: Body) -> Body:
        """A record of the controller, with the duration of its checkpoint filled in."""
        if (isinstance(body, Phase) and body.phase == "running") or isinstance(body, AttemptEnd):
            self._attempt(body.run, body.attempt).runs = True
        elif isinstance(body, Report):
            known = self._attempt(body.run, body.attempt)
            began_s = known.begun_s.pop(known.reported + 1, None)
            if began_s is None:
                return body  # started before this observed it
            known.reported += 1
            if body.checkpoint and body.checkpoint_took_s is None:
                return replace(body, checkpoint_took_s=max(0.0, self._clock() - began_s))
        return body

    def _attempt(self, run: str, attempt: int) -> _Attempt:
        found = self._attempts.setdefault((run, attempt), _Attempt())
        self._attempts.move_to_end((run, attempt))
        while len(self._attempts) > _ATTEMPTS_KEPT:
            self._attempts.popitem(last=False)
        return found
