"""Compare the run with recorded runs of the same job: throughput, goodput, and scaling."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.progress import as_it_ran
from cockpit.insight.metrics.robust_statistics import median, spread
from cockpit.insight.metrics.scaling import Scale, scaling
from cockpit.insight.metrics.summary import others_of_job, summary
from cockpit.model.run import RunSummary
from cockpit.report import values
from cockpit.report.document import Block, Column, Columns, Kind, Section, Table, Text, table
from cockpit.store.run import RunView
from cockpit.store.store import Store

RUNS_SHOWN = 12
LEAST_SPREAD = 0.02
"""Of the median: few runs show little of how much they differ."""


def compared(store: Store, run: RunView, past: Sequence[RunSummary]) -> Section:
    this = summary(store, run)
    others = others_of_job(store, run, past)
    blocks: list[Block] = []
    if others:
        others.sort(key=lambda it: it.started_s or 0.0, reverse=True)
        left_out = len(others) - RUNS_SHOWN
        note = f"{left_out:,} older ones are left out." if left_out > 0 else ""
        blocks += [_table((this, *others[:RUNS_SHOWN]), note), Text(_sentence(this, others))]
    scales = scaling(as_it_ran(run), others, Thresholds().warmup_s)
    if scales:
        columns: Columns[Scale] = (
            (Column("world_size", Kind.COUNT, "ranks"), lambda s: s.world_size),
            (Column("samples_per_s", Kind.RATE, "throughput"), lambda s: s.samples_per_s),
            (
                Column("efficiency_percent", Kind.PERCENT, "efficiency"),
                lambda s: s.efficiency_percent,
            ),
        )
        note = "Throughput per rank, relative to the smallest number of ranks."
        blocks.append(table("scaling", columns, scales, "By number of ranks", note))
    return Section("compared", "Comparison with other runs", tuple(blocks))


def _sentence(this: RunSummary, others: Sequence[RunSummary]) -> str:
    """Slow: more than 3 robust sigmas below the median of runs with as many ranks."""
    rates = [
        it.samples_per_s for it in others if it.world_size == this.world_size and it.samples_per_s
    ]
    if not rates or not this.samples_per_s:
        return (
            "None of them has the same number of ranks and a recorded throughput: there is no "
            "baseline."
        )
    middle = median(rates)
    sigma = max(spread(rates, middle), LEAST_SPREAD * middle)
    percent = 100 * (this.samples_per_s / middle - 1)
    away = (this.samples_per_s - middle) / sigma
    side = "above" if percent >= 0 else "below"
    normal = "within what is normal" if abs(away) <= 3 else "more than chance explains"
    return (
        f"Throughput is {values.number(abs(percent), 2)} % {side} the median of the {len(rates)} of"
        f" them with the same number of ranks: {values.number(abs(away), 2)} robust sigmas, "
        f"{normal}"
        f" (3 are; sigma is 1.4826 times the median absolute deviation, at least 2 %)."
    )


def _table(runs: Sequence[RunSummary], note: str) -> Table:
    """The first one is this run."""

    def name(it: RunSummary) -> str:
        return f"{it.name or it.run_id} (this run)" if it is runs[0] else it.name or it.run_id

    def took_s(it: RunSummary) -> float | None:
        return it.ended_s - it.started_s if it.started_s and it.ended_s else None

    columns: Columns[RunSummary] = (
        (Column("name", Kind.TEXT, "run"), name),
        (Column("run_id", Kind.TEXT, "id"), lambda it: it.run_id),
        (Column("started", Kind.LABEL), lambda it: values.date(it.started_s)),
        (Column("state", Kind.LABEL), lambda it: it.state.value),
        (Column("duration_s", Kind.SECONDS), took_s),
        (Column("world_size", Kind.COUNT, "ranks"), lambda it: it.world_size),
        (Column("attempts", Kind.COUNT), lambda it: it.attempts),
        (Column("steps", Kind.COUNT), lambda it: it.steps),
        (Column("samples_per_s", Kind.RATE, "throughput"), lambda it: it.samples_per_s),
        (Column("step_time_s", Kind.SECONDS, "step time"), lambda it: it.step_time_s),
        (Column("loss", Kind.NUMBER), lambda it: it.loss),
        (Column("goodput_percent", Kind.PERCENT, "goodput"), lambda it: it.goodput_percent),
    )
    return table("runs", columns, runs, note=note)
