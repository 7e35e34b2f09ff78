"""The cost of an analysis of a run of 1,000 ranks: `python -m tests.bench.diagnosis_cost`.

CPU time of what the UI computes once a second: the findings and the numbers of the diagnosis, and
the rank table with its distribution.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from cockpit.store.selectors import current_run
from cockpit.tui.rows.sort import Order
from cockpit.tui.views.ranks.rows import RankRows
from tests.bench.table import Line, Table, load, show
from tests.insight.test_cost import after_hours, diagnosing, finding
from tests.tui.simulated import wide

RANKS = 1_000
LOOKS = 20
TABLE_MS = 50.0


def measured() -> Table:
    began = load()
    training = after_hours(RANKS)
    lines = [
        line("all findings, with hours of curves", finding(training)),
        line("the numbers of the diagnosis", diagnosing(training)),
        line("the rank table, sorted and filtered, and a distribution", ranking(), TABLE_MS),
    ]
    return Table(
        f"What a look at {RANKS:,} ranks costs",
        f"Processor time of one of {LOOKS} looks, the median; each is asked for once a second.",
        lines,
        began,
    )


def line(text: str, snapshot: Callable[[], None], limit_ms: float | None = None) -> Line:
    snapshot()  # the first call fills the caches
    took_ms = statistics.median(taken_ms(snapshot) for _ in range(LOOKS))
    promise = f"≤ {limit_ms:g} ms" if limit_ms else ""
    return Line(text, f"{took_ms:.1f} ms", promise, took_ms <= limit_ms if limit_ms else None)


def taken_ms(snapshot: Callable[[], None]) -> float:
    began_s = time.process_time()
    snapshot()
    return 1_000 * (time.process_time() - began_s)


def ranking() -> Callable[[], None]:
    simulation = wide(RANKS, until_s=20)
    simulation.advance(20)
    simulation.session.drain()
    store, run = simulation.session.store, current_run(simulation.session.store)
    assert run is not None
    rows = RankRows()

    def look() -> None:
        order = Order(by="step_time_s", text="rank<900")
        shown = rows.rows(store, run, simulation.now_s, order)
        assert len(shown.rows[0:40]) == 40
        field = rows.field("step_time_s")
        assert field is not None
        rows.distribution(field)

    return look


if __name__ == "__main__":
    sys.exit(show(measured))
