"""Goodput: the part of a run's wall time in which it got on, and what took the rest.

    goodput = useful / wall,   useful = wall - sum of losses

as in Google's ML Goodput (2024) and MegaScale's effective training time (Jiang et al., NSDI 2024).
Losses by cause, disjoint, so that with the useful time they add up to the wall time:

    scheduling, starting        until the first attempt steps
    restart after failure       from an attempt's end, or its preemption, to the next one's steps
    resize                      the same, when an elastic resize was the reason
    restore                     reading a checkpoint
    ending                      shutting down
    checkpoint stall            sum of the time that ranks were blocked on checkpoints, mean of them
    redone steps                (last step of attempt k - first of attempt k+1 + 1) * step time
    stalled                     no progress, beyond what the run's own pace explains (see `stall`)

Training time in which no progress is known is neither useful nor lost: it is unknown.

The wall time starts with the run's first state and ends with its last, or now.
"""

from __future__ import annotations

import math
import operator

from msgspec import Struct

from cockpit.format import in_hours
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.progress import newest_s, stepping_since
from cockpit.insight.metrics.robust_statistics import finite, median
from cockpit.insight.metrics.stall import stalls, unseen_s
from cockpit.insight.metrics.timeline import Activity, stretches
from cockpit.model.alert import Finding, Severity
from cockpit.store.run import RUN_POINTS, RunView
from cockpit.store.series import Series

CHECKPOINT = "checkpoint stall"
REDONE = "redone steps"
STALLED = "stalled"
UNKNOWN = "unknown"
"""Beside the causes: whether that time was useful is not known."""
CAUSES = (
    *(doing.value for doing in Activity if doing is not Activity.TRAINING),
    CHECKPOINT,
    REDONE,
    STALLED,
)
_DECADES_S = 1e9
_ALIKE = 8
"""Points in a row that are close together: there the past of a thinned series ends."""


class Goodput(Struct, frozen=True):
    """Seconds; `useful_s`, `unknown_s` and the losses add up to `wall_s`."""

    wall_s: float
    useful_s: float | None
    """None while it is not known which part of the training time was."""
    lost_s: dict[str, float]
    """By cause, one of CAUSES, the largest first; without those of nothing."""
    unknown_s: float = 0.0
    failures_s: float = 0.0
    """The part of the losses that failures caused: restarts after them with their restores, redone
    steps, and stalls."""

    @property
    def percent(self) -> float | None:
        if self.useful_s is None or self.wall_s <= 0:
            return None
        return 100.0 * self.useful_s / self.wall_s

    @property
    def seconds(self) -> dict[str, float]:
        """`useful`, each cause, and `unknown`, without what is not known or nothing."""
        useful = {} if self.useful_s is None else {"useful": self.useful_s}
        unknown = {UNKNOWN: self.unknown_s} if self.unknown_s > 0 else {}
        return {**useful, **self.lost_s, **unknown}

    @property
    def parts(self) -> tuple[tuple[str, float], ...]:
        """The same as percent of the wall time."""
        if self.wall_s <= 0:
            return ()
        return tuple((name, 100.0 * part / self.wall_s) for name, part in self.seconds.items())


def goodput(run: RunView, now_s: float) -> Goodput | None:
    """None before anything is known of the run."""
    reported = stretches(run, now_s)
    if not reported:
        return None
    wall = sum(stretch.length_s for stretch in reported)
    lost = dict.fromkeys(CAUSES, 0.0)
    failures = 0.0
    for stretch in reported:
        if stretch.doing is not Activity.TRAINING:
            lost[stretch.doing.value] += stretch.length_s
        is_again = stretch.doing is Activity.RESTORE and stretch.attempt > 1
        if stretch.doing is Activity.RESTART or is_again:
            failures += stretch.length_s
    left = wall - sum(lost.values())
    for cause, seconds in (
        (CHECKPOINT, stalled_s(run.curves["checkpoint_s"])),
        (REDONE, redone_s(run)),
        (STALLED, sum(end_s - begin_s for begin_s, end_s in stalls(run, now_s))),
    ):
        lost[cause] = min(left, max(0.0, seconds)) if math.isfinite(seconds) else 0.0
        left -= lost[cause]
    by_size = sorted(lost.items(), key=lambda item: -item[1])
    losses = {cause: s for cause, s in by_size if s > 0}
    failures += lost[REDONE] + lost[STALLED]
    unseen = unseen_s(run, now_s)
    if unseen is None:
        return Goodput(wall, None, losses, left, failures)
    unknown = min(left, unseen)
    return Goodput(wall, left - unknown, losses, unknown, failures)


def redone_s(run: RunView) -> float:
    """The time of the steps that were done, lost with an attempt, and done again."""
    recent = finite(run.curves["step_time_s"].values[-600:])
    return redone_steps(run) * median(recent) if recent else 0.0


def redone_steps(run: RunView) -> int:
    total = 0
    last: int | None = None
    for _, attempt in sorted(run.attempts.items()):
        if last is not None and attempt.first_step is not None:
            total += max(0, last - attempt.first_step + 1)
        if attempt.last_step is not None:  # an attempt without a step has lost none
            last = attempt.last_step
    return total


def stalled_s(series: Series) -> float:
    """All the time blocked on checkpoints, of a series of seconds blocked in each record.

    Once the series is thinned, each point of its past is the mean of equally many records: as many
    as its points are further apart than the newest ones.
    """
    # A negative time or one of decades is no stall; NaN is ignored too.
    values = [value if 0 < value < _DECADES_S else 0.0 for value in series.values]
    if len(series) < RUN_POINTS // 2:
        return math.fsum(values)
    lengths = list(map(operator.sub, series.times[1:], series.times))
    usual = median(lengths[-(len(lengths) // 4) :])
    apart = median(lengths[: len(lengths) // 4])
    ratio = apart / usual if apart > 0 < usual else 1.0
    stride = 2.0 ** max(0, round(math.log2(min(ratio, 2.0**40))))
    if stride == 1.0:
        return math.fsum(values)
    near = 0.75 * stride * usual
    end = next(
        (at for at in range(len(lengths)) if max(lengths[at : at + _ALIKE]) < near), len(values)
    )
    return stride * math.fsum(values[:end]) + math.fsum(values[end:])


def find(run: RunView, now_s: float, limits: Thresholds) -> list[Finding]:
    """`low-goodput`, once the run is old enough for its start not to count."""
    found = goodput(run, now_s)
    if (
        found is None
        or found.wall_s < limits.goodput_after_s
        or found.percent is None
        or found.percent >= limits.goodput_percent
        or stepping_since(run) is None
        or newest_s(run) is None
    ):
        return []
    losses = [f"{name} {100 * s / found.wall_s:.0f} %" for name, s in found.lost_s.items()][:3]
    return [
        Finding(
            "low-goodput",
            f"run {run.id}",
            Severity.WARNING,
            f"Goodput is {found.percent:.0f} %: {', '.join(losses)}",
            f"Useful time over {in_hours(found.wall_s, 1)} of wall time; threshold "
            f"{limits.goodput_percent:g} %",
            "Reduce the largest source of lost time first",
            run.id,
        )
    ]
