"""Runs that only Ray Train reports: from its state actor, through the dashboard.

For a job that another user submitted, without the telemetry callback, this yields its runs, their
attempts and the nodes of the ranks, but no steps, losses or reports. Run ids are Ray Train's, which
telemetry uses too, except for a run that a second driver resumes: telemetry keeps its first id.
Runs that telemetry reports, and the other runs of their drivers, are skipped.
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
"""How long to wait for telemetry of a new run: its file may not be found yet."""

NO_RUNS = (
    "no driver has reported its runs; one with RAY_TRAIN_ENABLE_STATE_TRACKING=1 does "
    "(cockpit launch sets it)"
)


class _Reported(Struct):
    """What was reported of one run."""

    seen_s: float
    """By the monotonic clock."""
    newest: RunSeen | None = None
    begun: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)


class TrainRunsSource(PollingSource):
    """Yield RunSeen, AttemptStarted, AttemptEnded and SourceHealth (source `train`).

    `telemetry_ids` returns the ids of the runs that telemetry reports and Ray's ids of their
    drivers' jobs, or None before telemetry has reported. It is called on the loop of this source.
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
        self._reported: dict[str, _Reported] = {}

    async def poll(self) -> AsyncGenerator[Event, None]:
        runs = await self._dashboard.train_runs()
        theirs = self._telemetry_ids()
        for run in reversed(runs):
            reported = self._reported.setdefault(run.id, _Reported(self._monotonic()))
            if self._is_mine(run, reported, theirs):
                for event in self._news(run, reported):
                    yield event
        yield self.health(absent=not runs, error="" if runs else NO_RUNS)

    def _is_mine(self, run: TrainRun, reported: _Reported, theirs: Collection[str] | None) -> bool:
        if theirs is not None and (run.id in theirs or run.job_id in theirs):
            return False
        # States are reported in order of time: a state that is reported too soon here would hide
        # the earlier states of telemetry.
        return reported.newest is not None or self._monotonic() - reported.seen_s >= self._awaited_s

    def _news(self, run: TrainRun, reported: _Reported) -> Iterator[Event]:
        """The changes since the last report; at first, everything."""
        if reported.newest is None:
            yield self._state(run, reported, run.started_s, RunState.INITIALIZING)
        up = [attempt for attempt in run.attempts if attempt.workers]  # as telemetry counts them
        for number, attempt in enumerate(up, start=1):
            yield from self._attempt(run, reported, number, attempt)
        if run.ended_s is not None:
            at_s = run.ended_s
        elif reported.newest is not None and reported.newest.state is RunState.INITIALIZING and up:
            at_s = up[-1].started_s
        else:
            at_s = self._clock()
        before = reported.newest
        event = self._state(run, reported, at_s, run.state)
        if before is None or _differs(before, event):
            yield event
        else:
            reported.newest = before

    def _state(self, run: TrainRun, reported: _Reported, at_s: float, state: RunState) -> RunSeen:
        size = next((len(at.workers) for at in reversed(run.attempts) if at.workers), None)
        # Never before earlier reports: the cluster's clock and this host's may differ.
        at_s = max(at_s, reported.newest.at_s) if reported.newest else at_s
        reported.newest = RunSeen(
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
        return reported.newest

    def _attempt(
        self, run: TrainRun, reported: _Reported, number: int, attempt: TrainAttempt
    ) -> Iterator[Event]:
        if number not in reported.begun:
            reported.begun.add(number)
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
        if attempt.ended_s is not None and number not in reported.ended:
            reported.ended.add(number)
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
