"""Ranks that report nothing, and runs without progress.

    stale rank    RUNNING, and its last update is max(20 s, 5 * its step time) older than another's
    hung run      RUNNING, telemetry is current, and no rank made a step for the longest of 120 s,
                  20 * the median step time, and twice the longest pause of this run before
    slow start    the ranks are up for 600 s, and there is no first step
    no report     a run without steps made no report for the longest of 120 s, 6 * the usual
                  interval, and twice the longest interval before

The longest pause before distinguishes an evaluation, or a long checkpoint, from a hang; the first
one that takes more than two minutes is not recognised. In a large run the aggregator reports the
stale ranks. Nothing is found while telemetry itself is stale: see `findings`.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from itertools import pairwise

from cockpit import format
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.progress import LastUpdates, is_going, live_ranks, newest_s
from cockpit.insight.metrics.robust_statistics import finite, median
from cockpit.model.alert import Finding, Severity
from cockpit.store.run import AttemptView, RunView
from cockpit.store.series import Series


def find(
    run: RunView, now_s: float, limits: Thresholds, last_updates: LastUpdates
) -> list[Finding]:
    """A run without any progress has no stale ranks: there is one finding instead of many."""
    attempt = run.attempt
    if attempt is None or not is_going(run):
        return []
    if attempt.first_step_s is None:
        late = _no_first_step(run, attempt, now_s, limits)
        return late or _no_report(run, attempt, now_s, limits)
    return _hung(run, attempt, now_s, limits, last_updates) or _stale(
        run, now_s, limits, last_updates
    )


def stale_ranks_by_age(
    run: RunView, now_s: float, limits: Thresholds, last_updates: LastUpdates
) -> dict[int, float | None]:
    """By rank, the seconds since its last update; None if only the aggregator knows it."""
    attempt = run.attempt
    if attempt is None or attempt.first_step_s is None:
        return {}
    if run.spreads:
        return dict.fromkeys(run.silent)
    live = live_ranks(run)
    reported = {rank.rank: at_s for rank in live if (at_s := last_updates.of(rank)) is not None}
    # During an evaluation no rank reports: the last rank to report is the reference.
    last_s = max(reported.values(), default=now_s)
    found: dict[int, float | None] = {}
    for rank in live:
        step_s = rank.curves["step_time_s"].last or 0.0
        limit = max(limits.silent_s, limits.silent_steps * step_s)
        if last_s - reported.get(rank.rank, last_s) > limit:
            found[rank.rank] = now_s - reported[rank.rank]
    return found | _without_data(run, attempt, now_s, limits, {rank.rank for rank in live})


def _without_data(
    run: RunView, attempt: AttemptView, now_s: float, limits: Thresholds, live: set[int]
) -> dict[int, float | None]:
    """Placed, and without data in this attempt. In some scripts only rank 0 reports."""
    since_s = attempt.first_step_s or now_s
    missing = [p.rank for p in attempt.placements if p.rank not in live]
    if now_s - since_s <= limits.warmup_s or not missing:
        return {}
    most = 2 * len(live) > len(attempt.placements)
    return {
        rank: now_s - since_s
        for rank in missing
        if most or (rank in run.ranks and run.ranks[rank].sample is not None)
    }


def _stale(
    run: RunView, now_s: float, limits: Thresholds, last_updates: LastUpdates
) -> list[Finding]:
    found = []
    for rank, age in stale_ranks_by_age(run, now_s, limits, last_updates).items():
        view = run.ranks.get(rank)
        where = f" on {view.placement.node_ip}" if view is not None and view.placement else ""
        how_long = format.in_seconds(age, 0) if age is not None else "some seconds"
        found.append(
            Finding(
                "silent-rank",
                f"rank {rank}",
                Severity.WARNING,
                f"Rank {rank}{where} has sent no data for {how_long}",
                f"The others report; threshold {format.in_seconds(limits.silent_s)} or "
                f"{limits.silent_steps:g} of its steps",
                "Check its log and its stack; its node may be down or swapping",
                run.id,
            )
        )
    return found


def pause_limit_s(run: RunView, attempt: AttemptView, limits: Thresholds) -> float:
    """How long a run may make no step before it counts as hung, in seconds."""
    recent = finite(run.curves["step_time_s"].values[-120:])
    step_s = median(recent) if recent else 0.0
    return max(
        limits.hung_s,
        limits.hung_steps * step_s,
        2.0 * _longest_pause(run.curves["step_time_s"], attempt.first_step_s or 0.0),
    )


def _longest_pause(series: Series, since_s: float) -> float:
    """Between two of the newest records of this attempt that are not downsampled."""
    times = series.times[-7_200:]
    lengths = map(operator.sub, times[1:], times)
    ends = zip(times, lengths, strict=False)
    full_s = max(since_s, series.full_since_s)
    return max((length for begin, length in ends if begin >= full_s), default=0.0)


def _hung(
    run: RunView, attempt: AttemptView, now_s: float, limits: Thresholds, last_updates: LastUpdates
) -> list[Finding]:
    newest = newest_s(run)
    reported = [at_s for rank in live_ranks(run) if (at_s := last_updates.of(rank)) is not None]
    last_s = max(reported, default=newest)
    if last_s is None or now_s - last_s <= limits.hung_s:
        return []
    limit = pause_limit_s(run, attempt, limits)
    age = now_s - last_s
    if age <= limit:
        return []
    return [
        Finding(
            "hung-run",
            f"run {run.id}",
            Severity.CRITICAL,
            f"No rank has made a step for {format.in_seconds(age, 0)}, though the run is "
            f"{run.state.value}",
            f"Threshold {format.in_seconds(limit, 0)}: the largest of "
            f"{format.in_seconds(limits.hung_s)}, {limits.hung_steps:g} steps, and twice the "
            "longest earlier pause",
            "Compare the stacks: a rank that is not in the same collective blocks the others",
            run.id,
        )
    ]


def _no_first_step(
    run: RunView, attempt: AttemptView, now_s: float, limits: Thresholds
) -> list[Finding]:
    """Only if steps are reported: a script without `step` never has a first."""
    reports = any(view.first_step_s is not None for view in run.attempts.values())
    if not reports or attempt.started_s is None or now_s - attempt.started_s <= limits.first_step_s:
        return []
    return [
        Finding(
            "slow-start",
            f"run {run.id}",
            Severity.WARNING,
            f"Attempt {attempt.number} has been up for "
            f"{format.in_seconds(now_s - attempt.started_s, 0)} without a step",
            f"Threshold: {format.in_seconds(limits.first_step_s)}",
            f"Look at the stack of {format.ranks([0])}: it may be in a restore, a compilation or "
            "a rendezvous",
            run.id,
        )
    ]


def _no_report(
    run: RunView, attempt: AttemptView, now_s: float, limits: Thresholds
) -> list[Finding]:
    series = max((run.reported[name] for name in run.reported), key=len, default=None)
    if run.reported_s is None or series is None:
        return []
    intervals = _report_intervals(run, series)
    if len(intervals) < 2:
        return []
    usual = median(intervals)
    limit = max(limits.report_s, limits.report_intervals * usual, 2.0 * max(intervals))
    # Between two attempts there is none to report.
    age = now_s - max(run.reported_s, attempt.started_s or 0.0)
    if age <= limit:
        return []
    return [
        Finding(
            "no-report",
            f"run {run.id}",
            Severity.WARNING,
            f"No report for {format.in_seconds(age, 0)}, though the run is {run.state.value}",
            f"Reports come every {format.in_seconds(usual, 0)}; threshold "
            f"{format.in_seconds(limit, 0)}",
            "Look at the job's log and at the stacks of the ranks",
            run.id,
        )
    ]


def _report_intervals(run: RunView, series: Series) -> list[float]:
    """Between two reports of one attempt that are not downsampled."""
    times = series.times[bisect_left(series.times, series.full_since_s) :]
    starts = sorted(a.started_s for a in run.attempts.values() if a.started_s is not None)
    return [
        after - before
        for before, after in pairwise(times)
        if bisect_right(starts, before) == bisect_right(starts, after)
    ]
