"""Throughput that fell: against this run's own past, and against recorded runs of the same job.

slow = now < median(past) - 3 * 1.4826 * MAD(past) and now < 0.9 * median(past)

`now` is the median throughput of the last two minutes; `past` is the time before it in this attempt
(up to half an hour), else earlier attempts of the same world size, or the medians of recorded runs
of the same job and world size. The MAD makes the test ignore single slow records (an epoch's end,
an evaluation); the second condition ignores real but small differences. Throughput is samples a
second if reported, else steps a second.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.progress import newest_s, stepping_since
from cockpit.insight.metrics.robust_statistics import median, spread, window
from cockpit.model.alert import Finding, Severity
from cockpit.model.run import RunSummary
from cockpit.store.run import RunView

FEWEST = 30
"""Records, now and in the past."""


class Drop(Struct, frozen=True):
    """Throughput now and before, in `unit`s a second."""

    now: float
    before: float
    sigma: float
    unit: str

    @property
    def percent(self) -> float:
        return 100.0 * (1.0 - self.now / self.before)

    def is_slow(self, limits: Thresholds) -> bool:
        below = self.before - limits.regression_sigmas * self.sigma
        return self.now < below and self.percent >= limits.regression_percent


def throughput(run: RunView, since_s: float, until_s: float) -> tuple[list[float], str]:
    """Samples per second of all ranks, else steps per second: one number per record."""
    _, samples = window(run.curves["samples_per_s"], since_s, until_s)
    if samples:
        return samples, "samples"
    _, steps = window(run.curves["step_time_s"], since_s, until_s)
    return [1.0 / value for value in steps if value > 0], "steps"


def against_own_past(run: RunView, limits: Thresholds) -> Drop | None:
    """None while the attempt is too young, or nothing is there to compare with."""
    since, newest = stepping_since(run), newest_s(run)
    if since is None or newest is None or newest - since < limits.warmup_s + limits.window_s:
        return None
    now_from = newest - limits.window_s
    now, unit = throughput(run, now_from, newest)
    steady = since + limits.warmup_s
    past, of_past = throughput(run, max(steady, now_from - limits.regression_past_s), now_from)
    if len(past) < FEWEST or unit != of_past:
        past = _earlier(run, limits, unit)
    return _drop(now, past, unit)


def _earlier(run: RunView, limits: Thresholds, unit: str) -> list[float]:
    """Of earlier attempts with as many ranks."""
    attempt = run.attempt
    size = len(attempt.placements) if attempt else 0
    found: list[float] = []
    for view in run.attempts.values():
        if view is attempt or len(view.placements) != size or view.first_step_s is None:
            continue
        end = view.ended_s or view.first_step_s
        values, reported = throughput(run, view.first_step_s + limits.warmup_s, end - 5.0)
        found += values if reported == unit else []
    return found


def _drop(now: Sequence[float], past: Sequence[float], unit: str) -> Drop | None:
    if len(now) < FEWEST // 2 or len(past) < FEWEST:
        return None
    before = median(past)
    return Drop(median(now), before, spread(past, before), unit) if before > 0 else None


def against_recorded(run: RunView, past: Sequence[RunSummary], limits: Thresholds) -> Drop | None:
    """Compare with recorded runs. None with fewer than `regression_runs` of this world size.

    `past`: runs of the same job. The spread is at least 2 % of the median, since few runs give a
    poor estimate of it.
    """
    since, newest = stepping_since(run), newest_s(run)
    if since is None or newest is None or newest - since < limits.warmup_s + limits.window_s:
        return None
    same = [it for it in past if it.world_size == run.world_size and it.run_id != run.id]
    now, unit = throughput(run, newest - limits.window_s, newest)
    rates = [
        rate
        for it in same
        if (rate := it.samples_per_s if unit == "samples" else _rate(it.step_time_s))
    ]
    if len(rates) < max(1, limits.regression_runs) or len(now) < FEWEST // 2:
        return None
    before = median(rates)
    return Drop(median(now), before, max(spread(rates, before), 0.02 * before), unit)


def _rate(step_time_s: float | None) -> float | None:
    return 1.0 / step_time_s if step_time_s else None


def find(run: RunView, past: Sequence[RunSummary], limits: Thresholds) -> list[Finding]:
    """`regression` against itself, `slower-than-recorded` against runs of the same job."""
    own, recorded = against_own_past(run, limits), against_recorded(run, past, limits)
    found = []
    for kind, drop, than in (
        ("regression", own, "before"),
        ("slower-than-recorded", recorded, "in recorded runs of this job"),
    ):
        if drop is None or not drop.is_slow(limits):
            continue
        found.append(
            Finding(
                kind,
                f"run {run.id}",
                Severity.WARNING,
                f"{drop.now:.4g} {drop.unit}/s, {drop.percent:.0f} % less than {than} "
                f"({drop.before:.4g})",
                f"Below the median by more than {limits.regression_sigmas:g} robust sigmas "
                f"({drop.sigma:.3g}) and {limits.regression_percent:g} %",
                "See which share of the step grew, and whether a rank or its node slowed down",
                run.id,
            )
        )
    return found
