"""Split the time of a run into segments: from its phases, else from its states.

A segment belongs to the attempt that it leads to. States do not contain the time of the first step,
so that the first sample of the attempt ends its start.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from cockpit.model.run import Phase, RunState
from cockpit.store.run import AttemptView, RunView


class Activity(StrEnum):
    """The purpose of a segment of a run's time."""

    SCHEDULING = "scheduling"
    STARTING = "starting"
    RESTORE = "restore"
    RESTART = "restart after failure"
    RESIZE = "resize"
    TRAINING = "training"
    ENDING = "ending"


class Stretch(Struct, frozen=True):
    begin_s: float
    end_s: float
    doing: Activity
    attempt: int

    @property
    def length_s(self) -> float:
        return max(0.0, self.end_s - self.begin_s)


_OF_PHASE = {
    Phase.SCHEDULING: Activity.SCHEDULING,
    Phase.PLACEMENT_GROUP: Activity.STARTING,
    Phase.ACTOR_START: Activity.STARTING,
    Phase.PROCESS_GROUP: Activity.STARTING,
    Phase.RESTORE: Activity.RESTORE,
    Phase.FIRST_STEP: Activity.STARTING,
    Phase.RUNNING: Activity.TRAINING,
    Phase.PREEMPTING: Activity.RESTART,
    Phase.RESTARTING: Activity.RESTART,
    Phase.RESIZING: Activity.RESIZE,
    Phase.SHUTTING_DOWN: Activity.ENDING,
}
_OF_STATE = {
    RunState.INITIALIZING: Activity.STARTING,
    RunState.SCHEDULING: Activity.SCHEDULING,
    RunState.RESCHEDULING: Activity.SCHEDULING,
    RunState.RUNNING: Activity.TRAINING,
    RunState.UNKNOWN: Activity.TRAINING,
    RunState.PREEMPTING: Activity.RESTART,
    RunState.RESTARTING: Activity.RESTART,
    RunState.RESIZING: Activity.RESIZE,
    RunState.SHUTTING_DOWN: Activity.ENDING,
}


def began_s(run: RunView) -> float | None:
    """The first thing that is known of the run."""
    starts = [run.started_s] if run.started_s else []
    starts += [run.phases[0][0]] if run.phases else []
    firsts = [a.started_s or a.first_step_s for a in run.attempts.values()]
    return min([*starts, *(at_s for at_s in firsts if at_s is not None)], default=None)


def stretches(run: RunView, now_s: float) -> list[Stretch]:
    """From the run's beginning to its end, or to now, without a gap; empty when nothing is known.

    The start of a later attempt is part of the restart, or of the resize, that made it necessary;
    a restore stays a restore.
    """
    began = began_s(run)
    if began is None:
        return []
    end = run.ended_s if run.ended_s is not None else max(began, now_s)
    marks = _by_phase(run) if run.phases else _by_state(run)
    found: list[Stretch] = []
    why = Activity.STARTING
    for (at_s, doing, attempt), until_s in _with_end(marks, began, end):
        if doing in (Activity.RESTART, Activity.RESIZE):
            why = doing
        elif doing is Activity.TRAINING:
            why = Activity.RESTART  # the reason of a later start, if that has none
        is_later = attempt > 1 and why in (Activity.RESTART, Activity.RESIZE)
        if is_later and doing in (Activity.STARTING, Activity.SCHEDULING):
            doing = why
        found += _up_to_first_step(run, Stretch(at_s, until_s, doing, attempt), why)
    return [stretch for stretch in found if stretch.length_s > 0]


def _up_to_first_step(run: RunView, stretch: Stretch, why: Activity) -> Iterator[Stretch]:
    """A state is RUNNING once the processes are up: the wait for the first step is no training.

    If no steps are reported, all of the time counts as training.
    """
    view = run.attempts.get(stretch.attempt)
    first_s = view.first_step_s if view is not None else None
    reports = any(attempt.first_step_s is not None for attempt in run.attempts.values())
    if stretch.doing is not Activity.TRAINING or run.phases or not reports:
        yield stretch
        return
    until_s = stretch.end_s if first_s is None else min(stretch.end_s, first_s)
    starting = why if stretch.attempt > 1 else Activity.STARTING
    if until_s > stretch.begin_s:
        yield Stretch(stretch.begin_s, until_s, starting, stretch.attempt)
    yield Stretch(max(until_s, stretch.begin_s), stretch.end_s, Activity.TRAINING, stretch.attempt)


def _by_phase(run: RunView) -> list[tuple[float, Activity, int]]:
    return [(at_s, _OF_PHASE[phase], attempt) for at_s, attempt, phase in run.phases]


def _by_state(run: RunView) -> list[tuple[float, Activity, int]]:
    """States have no attempt: before one starts they lead to it, and it lasts until it ends."""
    attempts = [run.attempts[number] for number in sorted(run.attempts)]
    if not run.states:
        return [
            (a.started_s or a.first_step_s or 0.0, Activity.TRAINING, a.number)
            for a in attempts
            if a.started_s or a.first_step_s
        ]
    marks = [
        (at_s, _OF_STATE[state], _attempt_at(attempts, at_s))
        for at_s, state in run.states
        if state in _OF_STATE
    ]
    # An attempt can end before a state reports it: the time after it is no training.
    for view in attempts:
        if view.ended_s is not None and view.reason and not run.state.is_over:
            marks.append((view.ended_s, Activity.RESTART, view.number + 1))
    return sorted(marks, key=lambda mark: mark[0])


def _attempt_at(attempts: list[AttemptView], at_s: float) -> int:
    """The active attempt at that time, else the next one."""
    for view in attempts:
        if view.ended_s is None or at_s < view.ended_s:
            return view.number
    return attempts[-1].number + 1 if attempts else 1


def _with_end(
    marks: list[tuple[float, Activity, int]], began: float, end: float
) -> Iterator[tuple[tuple[float, Activity, int], float]]:
    """Each with the beginning of the next one; the time before the first is a start."""
    if not marks or marks[0][0] > began:
        marks = [(began, Activity.STARTING, 1), *marks]
    for at, mark in enumerate(marks):
        until_s = marks[at + 1][0] if at + 1 < len(marks) else end
        yield (min(mark[0], end), mark[1], mark[2]), min(until_s, end)
