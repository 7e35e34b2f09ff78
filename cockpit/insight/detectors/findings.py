"""All findings of one run, and of jobs without a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from cockpit import format
from cockpit.insight.detectors import (
    failed_jobs,
    gpus,
    hang,
    loss,
    memory,
    out_of_memory,
    regression,
    stale_ranks,
    straggler,
    stuck_start,
)
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics import bottleneck, checkpoint, cost, goodput, gpu_use, scaling
from cockpit.insight.metrics.prices import Prices
from cockpit.insight.metrics.progress import LastUpdates, is_believed
from cockpit.insight.metrics.summary import others_of_job
from cockpit.model.alert import Finding, Severity
from cockpit.model.run import RunSummary
from cockpit.store.run import RunView
from cockpit.store.store import Store

SOURCE_OF = {
    "node-memory": "ray",
    "node-disk": "ray",
    "object-store": "ray",
    "unused-gpus": "ray",
    failed_jobs.KIND: "ray",
    out_of_memory.KIND: "failures",
}
"""Which source a kind is believed of; the rest are telemetry's."""
WITHOUT_RUN = frozenset({failed_jobs.KIND, out_of_memory.KIND})
"""Kinds that are of no run: they are found without one, and stay when one is over."""
TELEMETRY = "telemetry"
_ORDER = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


def source_of(kind: str) -> str:
    return SOURCE_OF.get(kind, TELEMETRY)


def stale_source_names(store: Store, now_s: float, limits: Thresholds) -> frozenset[str]:
    """The sources of findings that are stale: their last data may no longer be true."""
    sources = {TELEMETRY, *SOURCE_OF.values()}
    return frozenset(s for s in sources if not is_believed(store, s, now_s, limits.stale_s))


def findings(
    store: Store,
    run: RunView | None,
    now_s: float,
    past: Sequence[RunSummary] = (),
    limits: Thresholds = Thresholds(),  # noqa: B008  it is frozen
    last_updates: LastUpdates | None = None,
    prices: Prices = Prices(),  # noqa: B008  it is frozen
) -> list[Finding]:
    """Return the current findings, the most severe first.

    Without a run, or after its end, only findings of jobs. Stale sources yield no findings, see
    `stale_source_names`. `past`: recorded runs; those of other jobs are ignored. Without
    `last_updates`, the clocks of nodes are trusted.
    """
    stale = stale_source_names(store, now_s, limits)
    found = failed_jobs.find(store, now_s, limits) + out_of_memory.find(store, now_s, limits)
    if run is not None and not run.state.is_over and TELEMETRY not in stale:
        found += _folded(
            _of_run(store, run, now_s, past, limits, last_updates, prices), run, limits.fold_ranks
        )
    current = [finding for finding in found if source_of(finding.kind) not in stale]
    return sorted(current, key=lambda it: _ORDER[it.severity])


def _of_run(
    store: Store,
    run: RunView,
    now_s: float,
    past: Sequence[RunSummary],
    limits: Thresholds,
    last_updates: LastUpdates | None,
    prices: Prices,
) -> list[Finding]:
    same_job = others_of_job(store, run, past)
    hangs = hang.find(run, now_s)
    return [
        *stuck_start.find(run, now_s, limits),
        *(hangs or stale_ranks.find(run, now_s, limits, last_updates or LastUpdates())),
        *loss.find(run, limits),
        *gpus.find(store, run, limits),
        *memory.find(store, run, limits),
        *straggler.find(run, limits),
        *checkpoint.find(run, limits),
        *regression.find(run, same_job, limits),
        *goodput.find(run, now_s, limits),
        *cost.find(store, run, now_s, prices, limits.price_per_gpu_hour),
        *bottleneck.find(run, limits),
        *gpu_use.find(run, limits),
        *scaling.find(run, same_job, limits),
    ]


def _folded(found: Sequence[Finding], run: RunView, most: int) -> list[Finding]:
    """The same trouble on many ranks is one finding, and one alert."""
    by_kind: dict[str, list[Finding]] = defaultdict(list)
    for finding in found:
        by_kind[finding.kind].append(finding)
    out: list[Finding] = []
    for same in by_kind.values():
        ranks = [int(f.subject[5:]) for f in same if f.subject.startswith("rank ")]
        if len(ranks) <= most or len(ranks) < len(same):
            out += same
            continue
        worst = min(same, key=lambda it: _ORDER[it.severity])
        what = f"{len(ranks):,} of {run.world_size or len(run.ranks):,} ranks: {worst.what}"
        out.append(
            replace(
                worst,
                subject="ranks",
                what=what,
                why=f"{worst.why}. Affected: {format.ranks(ranks)}",
            )
        )
    return out
