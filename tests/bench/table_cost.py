"""The cost of a live table: `python -m tests.bench.table_cost`.

1,000 rows of 10 columns at 10 Hz on a terminal of 200×50: CPU and bytes to the terminal by how much
changes, the widget alone in an app. The driver counts instead of writing.
"""

from __future__ import annotations

import asyncio
import sys
import time

from textual.app import App, ComposeResult
from textual.drivers.headless_driver import HeadlessDriver
from textual.pilot import Pilot

from cockpit.tui.widgets.table.table import Cell, Column, LineTable, Row
from tests.bench.table import Line, Table, load, show

ROWS, COLUMNS, TICKS, HERTZ = 1_000, 10, 50, 10


class Counter(HeadlessDriver):
    """A terminal that only counts."""

    written = 0

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        type(self).written += len(data.encode())


class Bench(App[None]):
    def compose(self) -> ComposeResult:
        yield LineTable([Column(f"c{n}", f"Column {n}", min_width=6) for n in range(COLUMNS)])


def rows(tick: int, changing: int) -> list[Row]:
    """All rows are built again, as a view does; in each changed row, two cells change."""
    return [
        Row(
            f"worker-{n}",
            tuple(
                Cell(f"{(tick if n < changing and c < 2 else 0) + n + c:07d}", "good")
                for c in range(COLUMNS)
            ),
        )
        for n in range(ROWS)
    ]


async def measure_changing(app: Bench, changing: int) -> Line:
    """Milliseconds in set_rows a tick, share of a core, bytes a tick."""
    table = app.query_one(LineTable)
    batches = [rows(tick, changing) for tick in range(TICKS + 1)]
    table.set_rows(batches[0])
    await asyncio.sleep(0.5)
    Counter.written = 0
    spent, cpu, began = 0.0, time.process_time(), time.monotonic()
    for tick, batch in enumerate(batches[1:], start=1):
        start = time.perf_counter()
        table.set_rows(batch)
        spent += time.perf_counter() - start
        await asyncio.sleep(max(0.0, began + tick / HERTZ - time.monotonic()))
    share = (time.process_time() - cpu) / (time.monotonic() - began)
    return Line(
        f"{changing:,} rows change",
        f"{1e3 * spent / TICKS:.2f} ms a tick in set_rows, {share:.1%} of a core, "
        f"{Counter.written / TICKS:,.0f} bytes a tick",
    )


def measure() -> Table:
    began = load()
    lines: list[Line] = []

    async def pilot(pilot: Pilot[object]) -> None:
        assert isinstance(pilot.app, Bench)
        lines.extend([await measure_changing(pilot.app, many) for many in (0, 1, 10, 50, ROWS)])
        pilot.app.exit()

    Bench(driver_class=Counter).run(size=(200, 50), mouse=False, auto_pilot=pilot)
    return Table(
        "A live table",
        f"A table of {ROWS:,} rows and {COLUMNS} columns, alone in an app on a terminal of 200×50. "
        f"All rows are computed {HERTZ} times a second; in a changed row, two cells change.",
        lines,
        began,
    )


if __name__ == "__main__":
    sys.exit(show(measure))
