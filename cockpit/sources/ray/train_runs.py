"""Runs that nothing but Ray Train itself tells of: its state actor, by way of the dashboard.

A job that somebody else submitted, without the telemetry callback, shows its runs, their attempts
and where the ranks are; there is no step, no loss and no report in it. Run ids are Ray Train's own,
the same that telemetry uses but for a run that a second driver goes on with: that one keeps its
first id there. So what telemetry tells of, and what its drivers do, is left to it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, field

from cockpit.model.error import CockpitError
from cockpit.model.event import AttemptEnded, AttemptStarted, Event, RunSeen, SourceHealth
from cockpit.model.run import Placement, RunState
from cockpit.model.text import one_line
from cockpit.sources.polling.backoff import Backoff
from cockpit.sources.polling.interval import Pace
from cockpit.sources.ray.answers import TrainAttempt, TrainRun
from cockpit.sources.ray.dashboard import Dashboard

POLL_S = 3.0
REST_S = 60.0
"""At rest, with a `Pace`."""
TELEMETRY_AWAITED_S = 15.0
"""How long a new run is left for telemetry to speak of: its file may not be found yet."""

NONE_TOLD = (
    "no driver has reported its runs; one with RAY_TRAIN_ENABLE_STATE_TRACKING=1 does "
    "(cockpit launch sets it)"
)


@dataclass(slots=True)
class _Told:
    """What has been said of one run."""

    seen_s: float
    said: RunSeen | None = None
    begun: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)


class TrainRunsSource:
    """RunSeen, AttemptStarted, AttemptEnded and SourceHealth (source `train`).

    `told_by_telemetry` gives the ids of the runs that telemetry tells of and Ray's own ids of
    their drivers' jobs, or None while telemetry has not spoken yet; it is called on the loop of
    this source.
    """

    name = "train"

    def __init__(
        self,
        dashboard: Dashboard,
        told_by_telemetry: Callable[[], Collection[str] | None] = tuple,
        *,
        poll_s: float = POLL_S,
        awaited_s: float = TELEMETRY_AWAITED_S,
        pace: Pace | None = None,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._dashboard, self._told_by_telemetry = dashboard, told_by_telemetry
        self._poll_s, self._awaited_s = poll_s, awaited_s
        self._pace = pace
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._sleep = pace.sleep if pace else sleep

    async def events(self) -> AsyncGenerator[Event, None]:
        told: dict[str, _Told] = {}
        while True:
            try:
                runs = await self._dashboard.train_runs()
            except CockpitError as error:
                wait_s = self._pause_s(self._backoff.failed())
                yield self._health(wait_s, ok=False, error=str(error))
            else:
                self._backoff.worked()
                theirs = self._told_by_telemetry()
                for run in reversed(runs):
                    known = told.setdefault(run.id, _Told(self._clock()))
                    if self._is_mine(run, known, theirs):
                        for event in self._news(run, known):
                            yield event
                wait_s = self._pause_s(self._poll_s)
                absent = not runs
                yield self._health(wait_s, absent=absent, error=NONE_TOLD if absent else "")
            await self._sleep(wait_s)

    def _is_mine(self, run: TrainRun, known: _Told, theirs: Collection[str] | None) -> bool:
        if theirs is not None and (run.id in theirs or run.job_id in theirs):
            return False
        # States are told in order of time: what is said here too soon would hide the states from
        # before that telemetry brings.
        return known.said is not None or self._clock() - known.seen_s >= self._awaited_s

    def _news(self, run: TrainRun, known: _Told) -> Iterator[Event]:
        """What has changed since it was told last; at first, everything."""
        if known.said is None:
            yield self._state(run, known, run.started_s, RunState.INITIALIZING)
        up = [attempt for attempt in run.attempts if attempt.workers]  # as telemetry counts them
        for number, attempt in enumerate(up, start=1):
            yield from self._attempt(run, known, number, attempt)
        if run.ended_s is not None:
            at_s = run.ended_s
        elif known.said is not None and known.said.state is RunState.INITIALIZING and up:
            at_s = up[-1].started_s
        else:
            at_s = self._clock()
        before = known.said
        event = self._state(run, known, at_s, run.state)
        if before is None or _differs(before, event):
            yield event
        else:
            known.said = before

    def _state(self, run: TrainRun, known: _Told, at_s: float, state: RunState) -> RunSeen:
        size = next((len(at.workers) for at in reversed(run.attempts) if at.workers), None)
        # Never before what was said before: the cluster's clock and this one's may differ.
        at_s = max(at_s, known.said.at_s) if known.said else at_s
        known.said = RunSeen(
            at_s=at_s,
            source=self.name,
            run_id=run.id,
            name=run.name,
            state=state,
            job_id=run.job_id,
            submission_id=run.submission_id,
            world_size=size,
            message=run.detail if state is run.state and state in _FAILED else "",
            max_failures=run.max_failures,
        )
        return known.said

    def _attempt(
        self, run: TrainRun, known: _Told, number: int, attempt: TrainAttempt
    ) -> Iterator[Event]:
        if number not in known.begun:
            known.begun.add(number)
            yield AttemptStarted(
                at_s=attempt.started_s,
                source=self.name,
                run_id=run.id,
                attempt=number,
                placements=tuple(
                    Placement(one.rank, one.node_id, one.node_ip, one.pid, one.gpu_ids)
                    for one in sorted(attempt.workers, key=lambda one: one.rank)
                ),
            )
        if attempt.ended_s is not None and number not in known.ended:
            known.ended.add(number)
            yield AttemptEnded(
                at_s=attempt.ended_s,
                source=self.name,
                run_id=run.id,
                attempt=number,
                reason=attempt.detail or attempt.status.lower(),
            )

    def _health(
        self, wait_s: float, *, ok: bool = True, absent: bool = False, error: str = ""
    ) -> SourceHealth:
        now_s = self._clock()
        return SourceHealth(
            at_s=now_s,
            source=self.name,
            ok=ok,
            absent=absent,
            error=one_line(error),
            retry_at_s=now_s + wait_s,
        )

    def _pause_s(self, active_s: float) -> float:
        return self._pace.pause_s(active_s, REST_S) if self._pace else active_s


_FAILED = (RunState.ERRORED, RunState.ABORTED)


def _differs(before: RunSeen, after: RunSeen) -> bool:
    """Whether anything but the time is another."""
    return (before.state, before.name, before.world_size, before.message) != (
        after.state,
        after.name,
        after.world_size,
        after.message,
    )
