"""Detect problems of the loss: not finite, spike, divergence, plateau, frozen.

Over the run's curve of the loss (mean over ranks, one point a record), in this attempt:

    NaN or infinite   the newest value of any rank is not finite
    spike             the median of the last 3 > m + max(8 s, 5 % of |first - m|); m, s: median and
                      1.4826 MAD of the 60 before, s no less than 2 % of |m|; first: of the run
    divergence        the median of the last minute > lowest + 50 % of (first - lowest), where first
                      and lowest are medians of twenty blocks of the attempt, it is 4 s above the
                      lowest, and it has not fallen since the minute before
    plateau           the Theil-Sen slope over the last hour is a decrease of less than 0.5 % in it
    frozen            45 records in a row with the same bits, while steps continue, and 4 times as
                      many as ever before in the attempt: some loops report their loss rarely

Divergence is relative to the range that the loss has covered, so that unit and sign do not matter.
The loss spikes of large models that PaLM's authors describe (Chowdhery et al. 2022, section 5.1)
are what `spike` is for. If ranks report no loss, the metric `loss` that the job reports is used.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby

from cockpit import format
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.progress import live_ranks, newest_s, stepping_since
from cockpit.insight.metrics.robust_statistics import blocks, finite, median, slope, spread, window
from cockpit.model.alert import Finding, Severity
from cockpit.store.run import RunView

BEFORE = 60
LATEST = 3
FIRST = 5
REPORTS_FROZEN = 10
REPEATED = 4


def find(run: RunView, limits: Thresholds) -> list[Finding]:
    """At most one: the most severe first."""
    broken = _not_finite(run)
    if broken:
        return broken
    since = stepping_since(run)
    if since is None:
        return _frozen_reports(run)
    values = run.curves["loss"].values
    if len(values) < LATEST:
        return _frozen_reports(run)
    for check in (_diverges, _spikes):
        if found := check(run, since, limits):
            return found
    return _frozen(run, since, limits) or _plateau(run, since, limits)


def _finding(
    run: RunView, kind: str, severity: Severity, what: str, why: str, todo: str
) -> list[Finding]:
    return [Finding(kind, f"run {run.id}", severity, what, why, todo, run.id)]


def _not_finite(run: RunView) -> list[Finding]:
    reported = {
        rank.rank: rank.sample.loss
        for rank in live_ranks(run)
        if rank.sample is not None and rank.sample.loss is not None
    }
    broken = [rank for rank, loss in reported.items() if not math.isfinite(loss)]
    last = run.curves["loss"].last
    if not reported:
        last = run.metrics.get("loss", last)
    if not broken and (last is None or math.isfinite(last)):
        return []
    step = f" at step {run.step:,}" if run.step else ""
    who = f" on {format.ranks(broken)}" if broken else ""
    return _finding(
        run,
        "loss-nan",
        Severity.CRITICAL,
        f"NaN or infinite loss{who}{step}",
        "NaN and infinity spread to the weights: training from this step on is lost",
        "Stop the job, resume from an earlier checkpoint, lower the learning rate, check the data",
    )


def _spikes(run: RunView, since: float, limits: Thresholds) -> list[Finding]:
    series = run.curves["loss"]
    values = finite(series.values[-(BEFORE + LATEST) :])
    if len(values) < BEFORE + LATEST or series.times[-(BEFORE + LATEST)] < since:
        return []
    before, now = values[:BEFORE], median(values[-LATEST:])
    middle = median(before)
    sigma = max(spread(before, middle), 0.02 * abs(middle))
    # Near its end a loss is small and its noise is skewed: what counts is what it had fallen.
    fallen = abs(median(finite(series.values[:FIRST])) - middle)
    if now <= middle + max(limits.spike_sigmas * sigma, fallen * limits.spike_percent / 100):
        return []
    return _finding(
        run,
        "loss-spike",
        Severity.WARNING,
        f"The loss jumped to {now:.4g} from {middle:.4g}",
        f"{(now - middle) / max(sigma, 1e-12):.0f} robust sigmas above the {BEFORE} records before;"
        f" threshold {limits.spike_sigmas:g}",
        "Look at the gradient norm and the data; clip gradients if it happens again",
    )


def _diverges(run: RunView, since: float, limits: Thresholds) -> list[Finding]:
    newest = newest_s(run) or since
    times, values = window(run.curves["loss"], since)
    if newest - since < 4 * limits.divergence_s or len(values) < 4 * BEFORE // 2:
        return []
    parts = blocks(times, values, 20)
    first, lowest = parts[0][1], min(value for _, value in parts)
    latest = [v for t, v in zip(times, values, strict=True) if t > newest - limits.divergence_s]
    earlier = [
        v
        for t, v in zip(times, values, strict=True)
        if newest - 2 * limits.divergence_s < t <= newest - limits.divergence_s
    ]
    if len(latest) < 10 or len(earlier) < 10:
        return []
    now, then = median(latest), median(earlier)
    sigma = spread(latest, now)
    covered = max(first - lowest, 4 * sigma)
    back = 100.0 * (now - lowest) / covered if covered > 0 else 0.0
    high = min(latest) > lowest
    if back < limits.divergence_percent or now - lowest < 4 * sigma or now < then or not high:
        return []
    if first - lowest <= 4 * sigma and now <= first + 4 * sigma:
        return []  # it never fell: there is nothing that it could give back
    return _finding(
        run,
        "loss-divergence",
        Severity.CRITICAL,
        f"The loss rose to {now:.4g} from its lowest {lowest:.4g} and stays there",
        f"It rose by {back:.0f} % of its total decrease, for "
        f"{format.in_seconds(limits.divergence_s)}; threshold"
        f" {limits.divergence_percent:g} %",
        "Go back to the checkpoint before it rose, with a lower learning rate",
    )


def _plateau(run: RunView, since: float, limits: Thresholds) -> list[Finding]:
    newest = newest_s(run) or since
    if newest - since < limits.plateau_s + limits.warmup_s:
        return []
    times, values = window(run.curves["loss"], newest - limits.plateau_s)
    if len(values) < BEFORE:
        return []
    parts = blocks(times, values, 24)
    level = abs(median(value for _, value in parts))
    fell = -slope(parts) * limits.plateau_s
    if level <= 0 or 100.0 * fell / level >= limits.plateau_percent:
        return []
    return _finding(
        run,
        "loss-plateau",
        Severity.INFO,
        f"The loss has stayed at {median(v for _, v in parts):.4g} for "
        f"{format.in_minutes(limits.plateau_s, 0)}",
        f"It fell by {100 * fell / level:.2f} % in that time; threshold "
        f"{limits.plateau_percent:g} %",
        "Training may have converged: lower the learning rate, or stop the run",
    )


def _frozen(run: RunView, since: float, limits: Thresholds) -> list[Finding]:
    series, most = run.curves["loss"], limits.frozen_records
    if len(series) < most or not _same(series.values[-most:]) or series.times[-most] < since:
        return []
    reported = series.values[bisect_left(series.times, since) :]
    # A loop that reports its loss every few steps repeats the value in between.
    stretches = [len(list(same)) for _, same in groupby(reported)]
    usual = max(stretches[:-1], default=most)
    if stretches[-1] < max(most, REPEATED * usual):
        return []
    return _finding(
        run,
        "loss-frozen",
        Severity.WARNING,
        f"The loss does not change: exactly {series.values[-1]!r} every time",
        f"The same in {stretches[-1]} records in a row, while steps continue; at most {usual} "
        "before",
        "Check that the optimizer steps, that gradients are not zero, that batches differ",
    )


def _frozen_reports(run: RunView) -> list[Finding]:
    values = run.reported["loss"].values
    if run.state.is_over or len(values) < REPORTS_FROZEN or not _same(values[-REPORTS_FROZEN:]):
        return []
    return _finding(
        run,
        "loss-frozen",
        Severity.WARNING,
        f"The reported loss does not change: exactly {values[-1]!r} every time",
        f"The same in {REPORTS_FROZEN} reports in a row",
        "Check that the optimizer steps, that gradients are not zero, that batches differ",
    )


def _same(values: Sequence[float]) -> bool:
    return all(value == values[0] for value in values)
