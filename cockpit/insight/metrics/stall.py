"""Time in which a run that should train made no progress.

Progress is a step, a report or a checkpoint. A gap between two of them is a stall when it is longer
than FLOOR_S and than 4 times each of the gaps beside it, and when no other such gap of the run is
at least half as long: evaluations and long checkpoints recur, a stall usually does not. The gap
after the newest progress, and one that the end of an attempt cut off, is a stall when longer than

max(FLOOR_S, 6 * the median gap, 2 * the longest gap that was no stall)

A stall begins at the last progress, plus one usual gap.

The watchdog of the ranks sees the progress between two reports too. Where its dumps explain a hang,
the stall begins at the last progress that the ranks saw, for any pace of the reports.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from msgspec import Struct

from cockpit.insight.hang.types import Confidence, Kind
from cockpit.insight.hang.verdict import verdict
from cockpit.insight.metrics.progress import is_going
from cockpit.insight.metrics.robust_statistics import median
from cockpit.insight.metrics.timeline import Activity, Stretch, stretches
from cockpit.store.run import AttemptView, RunView
from cockpit.store.series import Series

FLOOR_S = 30.0
_TIMES_NEIGHBOR = 4.0
_TIMES_MEDIAN = 6.0
_TIMES_LONGEST = 2.0
_RECENT = 60
_NEWEST = 7_200
"""Gaps before these are forgotten."""
_FEWEST = 3
"""The number of progress events needed to estimate a pace."""


class Stall(Struct, frozen=True):
    """A run that makes no progress now."""

    since_s: float
    """The instant of the last progress."""
    bound_s: float
    """The longest gap that the run's own pace explains, in seconds."""


def stall(run: RunView, now_s: float) -> Stall | None:
    """Return the stall in progress at `now_s`; None without one, or when the pace is unknown.

    The bound is at least twice the longest gap that ended in progress, a stall or not: such a gap
    may occur again.
    """
    if (hang := _hang(run, now_s)) is not None:
        return hang
    if not is_going(run) or now_s - max(map(_last, _progress(run))) <= FLOOR_S:
        return None
    times = progress_s(run)
    if len(times) < _FEWEST:
        return None
    attempt = run.attempt
    if attempt is not None and attempt.started_s is not None and times[-1] < attempt.started_s:
        return None  # this attempt has made none yet: it starts
    lengths = _gaps(times)
    bound = _bound_s(lengths, _longest_s(run, times, lengths))
    return Stall(times[-1], bound) if now_s - times[-1] > bound else None


def stalls(run: RunView, now_s: float) -> list[tuple[float, float]]:
    """Return the stalls of the run up to `now_s`, each with its begin and its end."""
    times = progress_s(run)
    hang = _hang(run, now_s)
    hung = [] if hang is None else [(hang.since_s, now_s)]
    if len(times) < _FEWEST:
        return hung
    training = [part for part in stretches(run, now_s) if part.doing is Activity.TRAINING]
    lengths = _gaps(times)
    long = _long_gaps(times, lengths, training)
    found = [at for at in long if not _recurs(long, at, lengths)]
    spans = [
        (times[at] + _beside(lengths, at) + _blocked_s(run, times[at + 1]), times[at + 1])
        for at in found
    ]
    longest = max(map(lengths.__getitem__, set(long).difference(found)), default=0.0)
    bound = _bound_s(lengths, longest)
    for part in training:
        if hung and part.end_s >= now_s:
            continue
        last = bisect_right(times, part.end_s + 1.0) - 1
        # Without progress in it, the extent of the segment is unknown.
        if last >= 0 and times[last] >= part.begin_s - 1.0 and part.end_s - times[last] > bound:
            spans.append((times[last] + _usual_s(lengths), part.end_s))
    return [(begin_s, end_s) for begin_s, end_s in sorted(spans + hung) if begin_s < end_s]


def unseen_s(run: RunView, now_s: float) -> float | None:
    """Return the seconds of training in attempts that made no progress for longer than usual.

    None while no stall could be detected: the pace is unknown, and no watchdog has reported that
    the ranks make progress, or since when they make none.
    """
    times = progress_s(run)
    if len(times) < _FEWEST:
        is_watched = run.hang.at_s is not None
        is_explained = not run.hang.dumps or _hang(run, now_s) is not None
        return 0.0 if is_watched and is_explained else None
    lengths = _gaps(times)
    bound = _bound_s(lengths, _longest_s(run, times, lengths))
    return sum(
        part.length_s
        for part in stretches(run, now_s)
        if part.doing is Activity.TRAINING
        and part.length_s > bound
        and not _has_progress(run.attempts.get(part.attempt))
    )


def _has_progress(attempt: AttemptView | None) -> bool:
    return attempt is None or attempt.first_step_s is not None or attempt.reported_s is not None


def _hang(run: RunView, now_s: float) -> Stall | None:
    """Return the hang that the ranks' dumps explain; an uncertain verdict is none."""
    found = verdict(run, now_s)
    if found is None or not found.is_late or found.kind is Kind.RESOURCES:
        return None
    if found.confidence is Confidence.LOW:
        return None
    return Stall(found.at_s - found.idle_s, found.bound_s)


def progress_s(run: RunView) -> list[float]:
    """Return the instants of the run's progress in order: of steps, reports and checkpoints."""
    steps, *others = _progress(run)
    return sorted(set(steps).union(*others)) if any(others) else list(steps)


def _progress(run: RunView) -> tuple[Sequence[float], Sequence[float], Sequence[float]]:
    """The instants of steps, of reports and of checkpoints, each in order."""
    steps, reports = _steps(run), _reports(run)
    return (
        steps.times if steps is not None else (),
        reports.times if reports is not None else (),
        [at_s for at_s, _ in run.checkpoints],
    )


def _steps(run: RunView) -> Series | None:
    names = ("step_time_s", "loss", "samples_per_s")
    return next((run.curves[name] for name in names if name in run.curves), None)


def _reports(run: RunView) -> Series | None:
    return max((run.reported[name] for name in run.reported), key=len, default=None)


def _longest_s(run: RunView, times: list[float], lengths: list[float]) -> float:
    """The longest of the newest gaps. In a thinned past all of them are long."""
    series = _steps(run) or _reports(run)
    full_since_s = -math.inf if series is None else series.full_since_s
    first = max(len(lengths) - _NEWEST, bisect_left(times, full_since_s))
    return max(lengths[first:], default=0.0)


def _last(times: Sequence[float]) -> float:
    return times[-1] if times else -math.inf


def _gaps(times: list[float]) -> list[float]:
    return list(map(operator.sub, times[1:], times))


def _usual_s(lengths: list[float]) -> float:
    return median(lengths[-_RECENT:])


def _bound_s(lengths: list[float], longest_s: float) -> float:
    return max(FLOOR_S, _TIMES_MEDIAN * _usual_s(lengths), _TIMES_LONGEST * longest_s)


def _long_gaps(times: list[float], lengths: list[float], training: list[Stretch]) -> list[int]:
    """Return the gaps within training that are far longer than their neighbours."""
    if max(lengths) <= FLOOR_S:
        return []
    return [
        at
        for at, length in enumerate(lengths)
        if length > FLOOR_S
        and length > _TIMES_NEIGHBOR * _beside(lengths, at)
        and any(p.begin_s - 1 <= times[at] and times[at + 1] <= p.end_s + 1 for p in training)
    ]


def _recurs(long: list[int], at: int, lengths: list[float]) -> bool:
    return any(other != at and 2.0 * lengths[other] >= lengths[at] for other in long)


def _beside(lengths: list[float], at: int) -> float:
    """Return the longer of the gaps before and after: in a thinned past all of them are long."""
    before = lengths[at - 1] if at else 0.0
    after = lengths[at + 1] if at + 1 < len(lengths) else 0.0
    return max(before, after)


def _blocked_s(run: RunView, at_s: float) -> float:
    """Return how long the step at `at_s` was blocked on a checkpoint: that is not a stall."""
    series = run.curves["checkpoint_s"]
    at = bisect_left(series.times, at_s)
    is_recorded = at < len(series) and series.times[at] == at_s and math.isfinite(series.values[at])
    return max(0.0, series.values[at]) if is_recorded else 0.0
