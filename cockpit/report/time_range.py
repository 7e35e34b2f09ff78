"""When a run was: its bounds, when it ran, and the phases of its attempts as spans. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from cockpit.model.run import RunState
from cockpit.store.run import RunView

HISTORY_S = 30 * 86_400.0


class Extent(Struct, frozen=True):
    """Unix seconds. `end_s` is the end of what is known, of an active run too."""

    begin_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.begin_s


class PhaseSpan(Struct, frozen=True):
    attempt: int
    name: str
    begin_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.begin_s


def extent(run: RunView) -> Extent:
    """From the first that is known of the run to its end, or to the last that is known."""
    reported = [moment for moment in _moments(run) if moment > 0]
    # Its history may begin before cockpit attached; a clock that is off by years is ignored.
    earliest = run.started_s - HISTORY_S if run.started_s else 0.0
    begin_s = min((moment for moment in reported if moment >= earliest), default=run.started_s)
    end_s = run.ended_s if run.ended_s is not None else max(reported, default=begin_s)
    return Extent(begin_s, max(begin_s, end_s))


def running_periods(run: RunView) -> list[tuple[float, float]]:
    """When the run was RUNNING; its complete time if its states are not known."""
    end_s = extent(run).end_s
    states = run.states
    if not states:
        return [(extent(run).begin_s, end_s)]
    untils = [at_s for at_s, _ in states[1:]] + [max(end_s, states[-1][0])]
    return [
        (at_s, until_s)
        for (at_s, state), until_s in zip(states, untils, strict=True)
        if state is RunState.RUNNING
    ]


def attempt_bounds(run: RunView, number: int) -> tuple[float | None, float | None]:
    """When the attempt began and ended; the newest of an active run has not ended."""
    attempt = run.attempts[number]
    ended_s = attempt.ended_s
    if ended_s is None and number == max(run.attempts) and run.state.is_over:
        ended_s = run.ended_s
    return attempt.started_s, ended_s


def phase_spans(run: RunView) -> list[PhaseSpan]:
    """Each phase until the next one; without phases, the states of the run."""
    end_s = extent(run).end_s
    reported: list[tuple[float, int, str]]
    if run.phases:
        reported = [(at_s, attempt, phase.value) for at_s, attempt, phase in run.phases]
    else:
        reported = [
            (at_s, _attempt_at(run, at_s, state), state.value.lower().replace("_", " "))
            for at_s, state in run.states
            if not state.is_over
        ]
    untils = [at_s for at_s, _, _ in reported[1:]] + [end_s]
    spans = []
    for (at_s, attempt, name), until_s in zip(reported, untils, strict=False):
        if until_s > at_s:
            spans.append(PhaseSpan(attempt, name, at_s, until_s))
    return spans


def _attempt_at(run: RunView, at_s: float, state: RunState) -> int:
    """The attempt of a state: states before an attempt's start belong to that attempt."""
    ended = sum(a.ended_s is not None and a.ended_s <= at_s for a in run.attempts.values())
    before = state in (RunState.RESTARTING, RunState.RESCHEDULING, RunState.RESIZING)
    started = [
        n for n, a in run.attempts.items() if a.started_s is not None and a.started_s <= at_s
    ]
    return max(1, ended + 1, max(started, default=0) + before)


def _moments(run: RunView) -> Iterator[float]:
    yield from (at_s for at_s, _ in run.states)
    yield from (at_s for at_s, _, _ in run.phases)
    for attempt in run.attempts.values():
        for moment in (attempt.started_s, attempt.ended_s, attempt.first_step_s):
            if moment is not None:
                yield moment
    # A script without telemetry has no curve of its steps, only what it reports.
    for curves in (run.curves, run.reported):
        for name in curves:
            if times := curves[name].times:
                yield times[0]
                yield times[-1]
    if run.reported_s is not None:
        yield run.reported_s
    yield from (at_s for at_s, _ in run.checkpoints)
    # Without progress, a rank's dump is the last that is known: the time until then is not useful.
    yield from (dump.at_s for dump in run.hang.dumps.values())
