"""The report of one run: all known facts, the most important first."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.insight.detectors.straggler import scores
from cockpit.insight.metrics.cost import cost_of
from cockpit.insight.metrics.goodput import goodput
from cockpit.insight.metrics.prices import Prices
from cockpit.insight.metrics.progress import as_it_ran
from cockpit.insight.metrics.save_interval import save_interval
from cockpit.insight.metrics.summary import others_of_job
from cockpit.model.run import RunSummary
from cockpit.report.charts import curves
from cockpit.report.document import Document, Section
from cockpit.report.sections import attempts, diagnosis, events, experiments, hang, overview, ranks
from cockpit.report.sections.comparison import compared
from cockpit.report.sections.diagnosis import measured
from cockpit.report.time_range import extent
from cockpit.report.values import text
from cockpit.store.run import RunView
from cockpit.store.store import Store


def report(
    store: Store,
    run: RunView,
    *,
    past: Sequence[RunSummary] = (),
    read_from: str = "",
    trouble: Sequence[str] = (),
    left: bool = False,
    prices: Prices = Prices(),  # noqa: B008  it is frozen
) -> Document:
    """Build the report. Sections without data are left out.

    `past`: recorded runs for comparison, of this job and of others. `read_from`: the source of the
    store; `trouble`: which parts could not be read. `left`: the run is no longer recorded.
    `prices`: for the cost of the run.
    """
    when = extent(run)
    useful = goodput(run, when.end_s)
    percent = useful.percent if useful is not None else None
    others = others_of_job(store, run, past)
    interval = save_interval(run, useful, others) if useful is not None else None
    line, tone = overview.verdict(store, run, percent, left=left)
    sections = (
        Section("numbers", "Key numbers", (overview.key_numbers(run, percent),)),
        curves.charts(run),
        diagnosis.goodput_section(useful, cost_of(store, run, when.end_s, prices)),
        diagnosis.bottleneck_section(run),
        compared(store, run, past),
        hang.hang(store, run, when.end_s),
        attempts.phases(run),
        attempts.attempts(store, run),
        attempts.drills(store, run),
        attempts.checkpoints(run, interval),
        ranks.ranks(run, scores(as_it_ran(run))),
        events.alerts(store, run),
        experiments.trials(store),
        experiments.tracked(store, run),
        events.events(store, run),
        measured(store, run, read_from, trouble),
    )
    return Document(
        title=f"Run {text(run.name or run.id, 120)}",
        verdict=line,
        tone=tone,
        begin_s=when.begin_s,
        facts=overview.head(store, run, left=left),
        sections=tuple(section for section in sections if section.blocks),
        marks=curves.marks(store, run),
    )
