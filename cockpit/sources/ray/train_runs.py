"""Runs that nothing but Ray Train itself tells of: its state actor, by way of the dashboard.

A job that somebody else submitted, without the telemetry callback, shows its runs, their attempts
and where the ranks are; there is no step, no loss and no report in it. Run ids are Ray Train's own,
the same that telemetry uses but for a run that a second driver goes on with: that one keeps its
first id there. So what telemetry tells of, and what its drivers do, is left to it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from typing import Unpack

from msgspec import Struct, field

from cockpit.model.event import AttemptEnded, AttemptStarted, Event, RunSeen
from cockpit.model.run import Placement, RunState
from cockpit.sources.polling.source import PollingOptions, PollingSource
from cockpit.sources.ray.answers import TrainAttempt, TrainRun
from cockpit.sources.ray.dashboard import Dashboard

POLL_S = 3.0
TELEMETRY_AWAITED_S = 15.0
"""How long a new run is left for telemetry to speak of: its file may not be found yet."""

NO_RUNS = (
    "no driver has reported its runs; one with RAY_TRAIN_ENABLE_STATE_TRACKING=1 does "
    "(cockpit launch sets it)"
)


class _Reported(Struct):
    """What has been said of one run."""

    seen_s: float
    """By the monotonic clock."""
    said: RunSeen | None = None
    begun: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)


class TrainRunsSource(PollingSource):
    """RunSeen, AttemptStarted, AttemptEnded and SourceHealth (source `train`).

    `telemetry_ids` gives the ids of the runs that telemetry tells of and Ray's own ids of
    their drivers' jobs, or None while telemetry has not spoken yet; it is called on the loop of
    this source.
    """

    name = "train"

    def __init__(
        self,
        dashboard: Dashboard,
        telemetry_ids: Callable[[], Collection[str] | None] = tuple,
        *,
        poll_s: float = POLL_S,
        awaited_s: float = TELEMETRY_AWAITED_S,
        **polling: Unpack[PollingOptions],
    ) -> None:
        super().__init__(poll_s=poll_s, **polling)
        self._dashboard, self._telemetry_ids = dashboard, telemetry_ids
        self._awaited_s = awaited_s
        self._told: dict[str, _Reported] = {}

    async def poll(self) -> AsyncGenerator[Event, None]:
        runs = await self._dashboard.train_runs()
        theirs = self._telemetry_ids()
        for run in reversed(runs):
            known = self._told.setdefault(run.id, _Reported(self._monotonic()))
            if self._is_mine(run, known, theirs):
                for event in self._news(run, known):
                    yield event
        yield self.health(absent=not runs, error="" if runs else NO_RUNS)

    def _is_mine(self, run: TrainRun, known: _Reported, theirs: Collection[str] | None) -> bool:
        if theirs is not None and (run.id in theirs or run.job_id in theirs):
            return False
        # States are told in order of time: what is said here too soon would hide the states from
        # before that telemetry brings.
        return known.said is not None or self._monotonic() - known.seen_s >= self._awaited_s

    def _news(self, run: TrainRun, known: _Reported) -> Iterator[Event]:
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

    def _state(self, run: TrainRun, known: _Reported, at_s: float, state: RunState) -> RunSeen:
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
        self, run: TrainRun, known: _Reported, number: int, attempt: TrainAttempt
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


_FAILED = (RunState.ERRORED, RunState.ABORTED)


def _differs(before: RunSeen, after: RunSeen) -> bool:
    """Whether anything but the time is another."""
    return (before.state, before.name, before.world_size, before.message) != (
        after.state,
        after.name,
        after.world_size,
        after.message,
    )
