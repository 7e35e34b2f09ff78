"""Scaling efficiency: throughput per rank, relative to the smallest known world size.

efficiency(N) = (T(N) / N) / (T(N0) / N0)

with T the median throughput and N0 the smallest world size, which is weak scaling efficiency when
the batch of a rank stays the same. The points are the attempts of this run, and recorded runs of
the same job; if both have a world size, this run's attempt is used.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cockpit.insight.detectors.regression import throughput
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.progress import newest_s
from cockpit.insight.metrics.robust_statistics import median
from cockpit.model.alert import Finding, Severity
from cockpit.model.run import RunSummary
from cockpit.store.run import RunView

FEWEST = 20


class Scale(Struct, frozen=True):
    """One world size: samples a second of all ranks, and the efficiency against the smallest."""

    world_size: int
    samples_per_s: float
    efficiency_percent: float


def scaling(run: RunView, past: Sequence[RunSummary], warmup_s: float) -> list[Scale]:
    """By world size, ascending; empty unless two are known."""
    rates: dict[int, float] = {}
    for size in {it.world_size for it in past if it.world_size and it.samples_per_s}:
        reported = [it.samples_per_s for it in past if it.world_size == size and it.samples_per_s]
        rates[size] = median(reported)
    rates.update(_of_attempts(run, warmup_s))
    if len(rates) < 2:
        return []
    smallest = min(rates)
    base = rates[smallest] / smallest
    return [Scale(size, rate, 100.0 * rate / size / base) for size, rate in sorted(rates.items())]


def _of_attempts(run: RunView, warmup_s: float) -> dict[int, float]:
    by_size: dict[int, list[float]] = {}
    newest = newest_s(run)
    if newest is None:
        return {}
    for view in run.attempts.values():
        size = len(view.placements)
        if not size or view.first_step_s is None:
            continue
        end = (view.ended_s - 5.0) if view.ended_s is not None else newest
        values, unit = throughput(run, max(view.first_step_s + warmup_s, end - 1_800.0), end)
        if unit == "samples" and len(values) >= FEWEST:
            by_size.setdefault(size, []).append(median(values))
    return {size: median(values) for size, values in by_size.items()}


def find(run: RunView, past: Sequence[RunSummary], limits: Thresholds) -> list[Finding]:
    """`poor-scaling` of the world size that the run has now."""
    now = run.world_size
    points = scaling(run, past, limits.warmup_s)
    here = next((point for point in points if point.world_size == now), None)
    if here is None or here.efficiency_percent >= limits.scaling_percent:
        return []
    least = points[0]
    return [
        Finding(
            "poor-scaling",
            f"run {run.id}",
            Severity.INFO,
            f"{here.world_size} ranks work at {here.efficiency_percent:.0f} % of the efficiency of "
            f"{least.world_size}",
            f"{here.samples_per_s:.4g} samples/s against {least.samples_per_s:.4g}; threshold "
            f"{limits.scaling_percent:g} %",
            "Larger batches per rank, or fewer ranks",
            run.id,
        )
    ]
